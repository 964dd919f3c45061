"""The commands that fit and calibrate: parsing and printing only. Heavy imports wait until a command runs."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable
from hierattn.command_line.console import Lines, fit_progress, print_record, progress
from hierattn.command_line.fits import next_command, print_fit, record_of, resumable, write_layers
from hierattn.command_line.options import Force, HeadDim, Json, Seed, build_layers, takes, whole_numbers
from hierattn.inference.methods.registry import AUTO, NAMES, method_of

FitMethod = StrEnum("FitMethod", list(NAMES))  # type: ignore[misc]
ASK = FitMethod(AUTO)
Chains = Annotated[int, typer.Option(help="Chains.", min=1, max=64)]
Width = Annotated[int | None, typer.Option(help="Width of the networks, for the model linear_scaling.")]
MostDraws = Annotated[
    int | None, typer.Option("--draws", "--most-draws", help="Draws of each chain at most (20,000; nuts: 2,000).", min=1)
]
Limit = Annotated[
    str, typer.Option(metavar="5m|90s|1h|none", help="Time for the whole fit; docs/fitting.md says what it changes.")
]
FitOut = Annotated[Path, typer.Option(help="netCDF file to write; for several layers a folder.")]
TryHeads = Annotated[
    str,
    typer.Option(
        metavar="auto|none|1,2,...",
        help="Other numbers of heads, compared by the evidence of each network; auto: half and twice, where no file says.",
    ),
]
NOT_CONVERGED = 4  # exit code
COMPILER = "--xla_backend_optimization_level=1"  # for fits: sooner compiled, and no slower


def compiling_sooner(command: Callable[..., None]) -> Callable[..., None]:
    """The compiler's settings for a command of many short runs, made before anything of it loads JAX."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        os.environ.setdefault("XLA_FLAGS", COMPILER)
        command(**given)

    return wrapped


def build_run(
    model: Annotated[str, typer.Option(help="A name in hierattn.models, or a .py file with a function `model`.")] = "limit_law",
    method: Annotated[FitMethod, typer.Option(help="How to fit.")] = ASK,
    chains: Chains = 4,
    most_draws: MostDraws = None,
) -> dict[str, Any]:
    """How to fit."""
    return {"model": model, "method": method.value, "chains": chains, "most_draws": most_draws}


@compiling_sooner
@takes(build_run, build_layers)
def write_fit(
    how: dict[str, Any],
    layers: dict[str, Any],
    out: FitOut,
    head_dim: HeadDim = None,
    width: Width = None,
    budget: Limit = "5m",
    try_heads: TryHeads = AUTO,
    seed: Seed = 0,
    force: Force = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was killed.")] = False,
    as_json: Json = False,
) -> None:
    """Fit the law's parameters to observed outputs; write posterior, predictions and verdict as netCDF for ArviZ."""
    import hierattn as ha
    from hierattn.inference.course.budget import budget_of
    from hierattn.inference.fitting import layer_of, plan
    from hierattn.inference.verdict import ESS_A_CHAIN

    start, most_draws = time.perf_counter(), how.pop("most_draws")
    more: dict[str, Any] = {"width": width, "seed": seed, "out": out, "force": force, "resume": resume}
    more["try_heads"] = _numbers(try_heads)
    more["budget"] = budget_of(budget, "--budget")
    if len(layers) > 1:
        write_layers(layers, how | {"method": _methods(how["method"], most_draws)}, head_dim, more, as_json)
        return
    (make,) = layers.values()
    observations = make()
    layer = layer_of(observations, head_dim)
    method = _limited(plan(observations, how["model"], layer, method=how["method"]).method, most_draws)
    how["method"] = (method,) if how["method"] == AUTO else method
    with fit_progress(method.name, method.most_steps, ESS_A_CHAIN * how["chains"]) as advance, resumable(out):
        tree = ha.fit(observations, layer=layer, **how, **more, advance=advance)
    record = record_of(tree) | {"seconds": round(time.perf_counter() - start, 2), "seed": seed, "out": str(out)}
    record["next"] = next_command(record, getattr(method, "most_draws", None), sys.argv[1:])
    if as_json:
        print_record("", record, as_json)
    else:
        print_fit(record)
    if record["verdict"] != "CONVERGED":
        raise typer.Exit(NOT_CONVERGED)


def _numbers(try_heads: str) -> Any:
    """Numbers of heads to be tried: "auto", none, or these."""
    if try_heads in (AUTO, "none"):
        return AUTO if try_heads == AUTO else ()
    return tuple(whole_numbers(try_heads, "--try-heads"))


def _limited(method: Any, most_draws: int | None) -> Any:
    """The method with another number of draws at most."""
    if most_draws is None:
        return method
    if not method.sampled:
        raise unusable("--draws", "a method that samples chains", method.name, "leave it out")
    return replace(method, most_draws=most_draws)


def _methods(method: str, most_draws: int | None) -> Any:
    """The method of a name, or all that auto may take, with another number of draws at most where they sample chains."""
    if most_draws is None:
        return method
    if method != AUTO:
        return _limited(method_of(method), most_draws)
    every = (method_of(name) for name in NAMES if name != AUTO)
    return tuple(replace(each, most_draws=most_draws) if each.sampled else each for each in every)  # type: ignore[call-arg]


@takes()
def write_calibration(
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    networks: Annotated[int, typer.Option(help="Networks of a data set.")] = 50,
    tokens: Annotated[int, typer.Option(help="Tokens, with kernel K = I.")] = 4,
    heads: Annotated[int, typer.Option(help="Heads.")] = 2,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network.")] = 16,
    replicates: Annotated[int, typer.Option(help="Data sets, each fitted.")] = 100,
    one_token: Annotated[bool, typer.Option("--one-token", help="Observe the first token only.")] = False,
    method: Annotated[FitMethod, typer.Option(help="How to fit.")] = ASK,
    keep: Annotated[Path | None, typer.Option(help="Zarr file that keeps each data set's fit, to go on with.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --keep has.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes of this machine (none: this process).")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Dask cluster that exists.")] = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check inference on data with known parameters: ranks, coverage of intervals, convergence."""
    import json

    from hierattn.base.files.writing import check_new, whole_file
    from hierattn.base.provenance import provenance
    from hierattn.inference import calibration
    from hierattn.sweeps.functions import replicates_of
    from hierattn.sweeps.sweep import sweep

    check_new(out, force)
    settings: dict[str, Any] = {
        "networks": networks,
        "coordinates": coordinates,
        "tokens": tokens,
        "heads": heads,
        "seed": seed,
    }
    settings |= {"method": method.value} | ({"observed": [0]} if one_token else {})
    where: dict[str, Any] = {"out": keep, "resume": resume, "force": force, "workers": workers, "scheduler": scheduler}
    with progress("data sets", replicates) as advance:
        over = {"number": range(replicates)}
        found = replicates_of(sweep("replicate", over, settings, **where, advance=advance, say=Lines().say))
    record = calibration.summarise(found)
    with whole_file(out, force) as temporary:
        every = [replicate._asdict() for replicate in found]
        temporary.write_text(json.dumps(record | provenance(seed) | {"every_replicate": every}, indent=1) + "\n")
    print_record(f"{replicates} data sets of {networks} networks, {tokens} tokens, {heads} heads -> {out}", record, as_json)
