"""The command that evaluates a function at every point of a plan. Heavy imports wait until it runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable
from hierattn.command_line.console import Lines, print_record, progress
from hierattn.command_line.options import Force, Json

PICTURES = (".png", ".pdf", ".svg")
FAILED = 1  # exit code, if a point has


def run_sweep(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml|SWEEP.zarr", help="A plan; or a sweep's file, to look at.")],
    out: Annotated[Path | None, typer.Option(help="Zarr file to write, one chunk for each point.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes of this machine (none: this process).")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Dask cluster that exists.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File for a picture (.png, .pdf, .svg).")] = None,
    quantity: Annotated[str | None, typer.Option(help="What the picture shows (the first number).")] = None,
    at: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Where the picture is taken of other options.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep that ended early.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate a function at every point of a grid: law, compare, depth, fit, diagnose, or one of your own."""
    from hierattn.base.files.writing import check_new

    if figure is not None and figure.suffix not in PICTURES:
        raise unusable("figure", f"a name that ends in {', '.join(PICTURES)}", str(figure))
    if figure is not None:
        check_new(figure, force)
    results = _shown(plan) if plan.suffix == ".zarr" else _run(plan, out, workers, scheduler, resume, force)
    if figure is not None:
        _draw(results, figure, quantity, dict(_pair(each) for each in at or []), force)
    told = _told(results)
    print_record(f"{plan}: {' x '.join(f'{size} {dim}' for dim, size in results['message'].sizes.items())}", told, as_json)
    if told["failed"]:
        raise typer.Exit(FAILED)


def _shown(path: Path) -> Any:
    from hierattn.sweeps.store import read_sweep

    return read_sweep(path)


def _run(path: Path, out: Path | None, workers: int | None, scheduler: str | None, resume: bool, force: bool) -> Any:
    from hierattn.sweeps.plan import read_plan
    from hierattn.sweeps.sweep import carry_out

    planned = read_plan(path)
    if out is None:
        raise unusable("out", "a file for the results", None, f"as in --out {path.with_suffix('.zarr').name}")
    if out.suffix != ".zarr":
        raise unusable("out", "a name that ends in .zarr", str(out))
    with progress("points", len(planned.points)) as advance:
        how: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "resume": resume, "force": force}
        return carry_out(planned, out=out, **how, advance=advance, say=Lines().say)


def _told(results: Any) -> dict[str, Any]:
    """How many points have numbers, how many failed, and between what their numbers lie."""
    failed = results["message"].values != ""
    done = results["seconds"].notnull().values if "seconds" in results else failed & False
    told: dict[str, Any] = {"points": int(failed.size), "done": int(done.sum()), "failed": int((failed & ~done).sum())}
    for name, x in results.items():
        if name != "message" and not str(name).endswith("_error") and x.notnull().any():
            told[str(name)] = [float(x.min()), float(x.max())]
    first = [str(x) for x in results["message"].values[failed & ~done].ravel()[:1]]
    return told | ({"reasons": [{"code": "failed", "message": f"a point failed: {first[0]}", "numbers": {}}]} if first else {})


def _draw(results: Any, figure: Path, quantity: str | None, at: dict[str, str], force: bool) -> None:
    from hierattn.base.files.writing import whole_file
    from hierattn.reporting.sweeps import picture

    drawn = picture(results, quantity, at)
    with whole_file(figure, force) as temporary:
        drawn.savefig(temporary, format=figure.suffix[1:], dpi=160)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise unusable("at", "NAME=VALUE", repr(text), "as in --at heads=4")
    return name, value
