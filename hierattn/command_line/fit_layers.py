"""Fits of several layers by one command: a line a layer, a figure, and the exit code of the worst."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from hierattn.command_line.console import fit_progress

UNUSABLE, NOT_CONVERGED, INTERRUPTED = 2, 4, 130  # exit codes
FIGURE = "layers.svg"


def write_layers(
    layers: dict[str, Any], how: dict[str, Any], head_dim: int | None, more: dict[str, Any], as_json: bool
) -> None:
    """Fit them all; print the table, write the figure beside it."""
    import hierattn as ha
    from hierattn.base.files.writing import whole_file
    from hierattn.inference.course.layers import FAILED, fit_layers, lines
    from hierattn.inference.fitting import layer_of
    from hierattn.inference.verdict import ESS_A_CHAIN
    from hierattn.reporting.layer_figures import figure

    start, where = time.perf_counter(), {name: more.pop(name) for name in ("out", "force", "resume", "budget")}

    def one(observations: Any, **rest: Any) -> Any:
        return ha.fit(observations, layer=layer_of(observations, head_dim), **how, **more, **rest)

    with fit_progress("", 1, ESS_A_CHAIN * how["chains"]) as advance, resumable(where["out"]):
        found = fit_layers(layers, one, **where, advance=advance)
    written = {"out": str(where["out"]), "figure": None}
    drawn = figure(found.rows)
    if drawn is not None:
        written["figure"] = str(where["out"] / FIGURE)
        with whole_file(where["out"] / FIGURE, force=True) as temporary:
            temporary.write_text(drawn, encoding="utf-8")
    if as_json:
        record = {"layers": found.rows, "seconds": round(time.perf_counter() - start, 2), "seed": more["seed"]}
        print(json.dumps(record | written, allow_nan=False))
    else:
        print(*lines(found.rows), sep="\n")
        print(f"-> {written['out']}" + (f", {written['figure']}" if drawn is not None else ""))
    verdicts = {row["verdict"] for row in found.rows}
    if "NOT CONVERGED" in verdicts or FAILED in verdicts:
        raise typer.Exit(NOT_CONVERGED if "NOT CONVERGED" in verdicts else UNUSABLE)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Ctrl-C says how to go on, if something is there to go on with."""
    try:
        yield
    except KeyboardInterrupt:
        kept = [Path(f"{out}.resume"), *sorted(out.glob("*.resume"))] if out.is_dir() else [Path(f"{out}.resume")]
        there = out if out.is_dir() and any(out.iterdir()) else next((path for path in kept if path.exists()), None)
        more = f"; {there} keeps what is done: the same command with --resume goes on from there" if there is not None else ""
        print(f"hierattn: interrupted{more}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
