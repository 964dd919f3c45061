"""The page: a diagnosis, a fit or several as one HTML file that needs nothing else."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hierattn.base.files.writing import check_new, whole_file
from hierattn.diagnostics import words
from hierattn.diagnostics.diagnosis import Diagnosis, diagnose
from hierattn.observed.observations import Observations
from hierattn.reporting import figures, fit_arrays, fit_figures, prediction_figures
from hierattn.reporting.figures import Panel

if TYPE_CHECKING:
    from xarray import DataTree


def report(
    subject: "Diagnosis | Observations | DataTree",
    out: str | Path,
    *,
    fits: "dict[str, DataTree] | None" = None,
    force: bool = False,
    **options: Any,
) -> Diagnosis:
    """Write a report: of a diagnosis, or of outputs or a fit, which are diagnosed first (with the options of `diagnose`).

    - fits: fits of the same outputs by other models, by name, to be ranked
    """
    check_new(out, force)
    diagnosis = subject if isinstance(subject, Diagnosis) else diagnose(subject, **options)
    text = render(diagnosis, fits or {})
    with whole_file(out, force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return diagnosis


def render(diagnosis: Diagnosis, fits: "dict[str, DataTree] | None" = None) -> str:
    """The page as text."""
    tree, rows = diagnosis.subject.tree, fit_figures.ranking(fits or {})
    sections = {
        "Against the law": [
            figures.hierarchy(diagnosis),
            figures.quantiles(diagnosis),
            figures.exceedances(diagnosis),
            figures.kurtosis(diagnosis),
        ],
        "Predictions and power": [prediction_figures.predictive(diagnosis), prediction_figures.power(diagnosis)],
    }
    table: dict[str, Any] = {}
    arrays: list[dict[str, Any]] = []
    if tree is not None:
        table, arrays = json.loads(tree.attrs["parameters"]), json.loads(tree.attrs.get("arrays", "[]"))
        sections["Predictions and power"] += [fit_figures.predicted(tree), fit_figures.calibration(tree)]
        sections["Fit"] = [fit_figures.ranks(tree, table), *fit_arrays.matrices(tree, table, arrays)]
    if rows:
        sections["Models"] = [fit_figures.models(rows)]
    shown = {title: [panel for panel in panels if panel is not None] for title, panels in sections.items()}
    return template().render(
        diagnosis=diagnosis,
        record=diagnosis.record,
        words=words,
        sections={title: panels for title, panels in shown.items() if panels},
        parameters={name: row for name, row in table.items() if not arrays or "[" not in name},
        arrays=arrays,
        fit_reasons=json.loads(tree.attrs["reasons"]) if tree is not None else [],
        fit_attributes={}
        if tree is None
        else {k: v for k, v in tree.attrs.items() if k not in ("reasons", "parameters", "arrays")},
        rows=rows,
        raw=Markup,
    )


def notebook(diagnosis: Diagnosis) -> str:
    """The verdict and the main figures, for a notebook's cell."""
    panels: list[Panel | None] = [
        figures.hierarchy(diagnosis),
        figures.quantiles(diagnosis),
        prediction_figures.power(diagnosis),
    ]
    return template("notebook.html").render(
        diagnosis=diagnosis,
        words=words,
        panels=[panel for panel in panels if panel is not None],
        raw=Markup,
    )


def number(x: Any) -> str:
    """A number as the page shows it; whole lists of them too."""
    if isinstance(x, bool) or x is None:
        return {True: "yes", False: "no", None: "none"}[x]
    if isinstance(x, list):
        return ", ".join(map(number, x))
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def template(name: str = "report.html") -> Any:
    """A template of this folder, with what all of them use."""
    loader = PackageLoader("hierattn.reporting", "")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    return environment.get_template(name)
