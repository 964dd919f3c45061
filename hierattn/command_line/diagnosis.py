"""The commands that diagnose and report: parsing and printing only. Heavy imports wait until a command runs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable
from hierattn.command_line.console import progress
from hierattn.command_line.options import (
    Force,
    HeadDim,
    Json,
    Networks,
    ObservedHeads,
    ObservedInputs,
    ObservedKernel,
    ObservedMask,
    ObservedTokens,
    Seed,
    build_observations,
    takes,
)

Subject = Annotated[Path, typer.Argument(help="A fit (.nc), or a file of outputs (network, token, coordinate).")]
Given = "Test the law with this value of {}; without it, that of the file's layer, or an estimate."
GivenScoreScale = Annotated[float | None, typer.Option(help=Given.format("sigma_Q sigma_K"))]
GivenValueScale = Annotated[float | None, typer.Option(help=Given.format("sigma_V sigma_O"))]
Page = Annotated[Path, typer.Option(help="HTML file to write.")]


def build_diagnosis(
    file: Subject,
    kernel: ObservedKernel = None,
    inputs: ObservedInputs = None,
    heads: ObservedHeads = None,
    head_dim: HeadDim = None,
    tokens: ObservedTokens = None,
    mask: ObservedMask = None,
    networks: Networks = None,
    score_scale: GivenScoreScale = None,
    value_scale: GivenValueScale = None,
    seed: Seed = 0,
) -> Any:
    """The diagnosis that the options of a command ask for, not yet made."""
    described: dict[str, Any] = {
        "kernel": kernel,
        "inputs": inputs,
        "heads": heads,
        "tokens": tokens,
        "mask": mask,
        "networks": networks,
    }
    scales: dict[str, Any] = {"score_scale": score_scale, "value_scale": value_scale, "seed": seed}

    def make() -> Any:
        import hierattn as ha
        from hierattn.inference.fitting import layer_of
        from hierattn.observed.fits import is_fit, read_fit

        if not is_fit(file):
            observations = build_observations(file, **described)
            layer = None if observations.kernel is None else layer_of(observations, head_dim)
            return ha.diagnose(observations, layer, **scales)
        known = {name: value for name, value in (described | {"head_dim": head_dim}).items() if value is not None}
        for name in known:
            raise unusable(f"--{name.replace('_', '-')}", "nothing with a fit, which knows it", known[name], "leave it out")
        return ha.diagnose(read_fit(file), **scales)

    return make


@takes(build_diagnosis)
def print_diagnosis(make: Any, as_json: Json = False) -> None:
    """Do outputs, or the outputs behind a fit, follow the law? Verdict, tests and what to do next; exits with 0 in any case.

    --json has every number.
    """
    diagnosis = make()
    print_diagnosed(diagnosis, as_json)


def print_diagnosed(diagnosis: Any, as_json: bool, **more: str) -> None:
    """In words, or every number as JSON; with more lines, or entries, such as the page that was written."""
    if as_json:
        print(json.dumps(diagnosis.record | more, allow_nan=False))
        return
    from hierattn.diagnostics.words import text

    print(text(diagnosis, diagnosis.record))
    if more:
        print("", *more.values(), sep="\n")


@takes(build_diagnosis)
def write_report(
    make: Any,
    out: Page,
    model: Annotated[list[Path] | None, typer.Option(help="Further fits of the same outputs, to be ranked.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Diagnose, and write what to believe as one self-contained HTML page."""
    from hierattn.base.files.writing import check_new
    from hierattn.observed.fits import read_fit

    check_new(out, force)
    others = {path.stem: read_fit(path) for path in model or []}
    diagnosis = make()
    from hierattn.reporting.page import report

    tree = diagnosis.subject.tree
    fits = {tree.attrs["model"]: tree} | others if tree is not None else others
    report(diagnosis, out, fits=fits, force=force)
    print_diagnosed(diagnosis, as_json, out=str(out))


@takes()
def run_demo(
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("demo"), force: Force = False, seed: Seed = 0
) -> None:
    """The whole job on a built-in layer: simulate finite networks, fit, compare models, write the report."""
    from hierattn.reporting.demonstration import STEPS, demonstrate

    with progress("demo", len(STEPS)) as advance:
        page, diagnosis = demonstrate(out, seed, force, advance)
    print_diagnosed(diagnosis, as_json=False, out=str(page))
