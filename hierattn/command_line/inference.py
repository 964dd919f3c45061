"""The commands that fit and calibrate: parsing and printing only. Heavy imports wait until a command runs."""

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.command_line.console import print_record, progress
from hierattn.command_line.options import Force, HeadDim, Json, Out, Seed, build_observations, takes

FitMethod = StrEnum("FitMethod", ["auto", "networkwise", "nuts", "marginal", "moments"])
Chains = Annotated[int, typer.Option(help="Chains.", min=1, max=64)]
Width = Annotated[int | None, typer.Option(help="Width of the networks, for the model linear_scaling.")]
NOT_CONVERGED = 4  # exit code


def build_run(
    model: Annotated[str, typer.Option(help="A name in hierattn.models, or a .py file with a function `model`.")] = "limit_law",
    method: Annotated[FitMethod, typer.Option(help="How to fit.")] = FitMethod.auto,
    chains: Chains = 4,
) -> dict[str, Any]:
    """How to fit."""
    return {"model": model, "method": method.value, "chains": chains}


@takes(build_run, build_observations)
def write_fit(
    how: dict[str, Any],
    observations: Any,
    out: Out,
    head_dim: HeadDim = None,
    width: Width = None,
    seed: Seed = 0,
    force: Force = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was killed.")] = False,
    as_json: Json = False,
) -> None:
    """Fit the law's parameters to observed outputs; write posterior, predictions and verdict as netCDF for ArviZ."""
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")  # sooner compiled, and no slower
    import hierattn as ha
    from hierattn.inference.fitting import MOST_DRAWS, MOST_SWEEPS, layer_of

    start = time.perf_counter()
    layer = layer_of(observations, head_dim)
    total = MOST_DRAWS if how["method"] == "nuts" else MOST_SWEEPS
    with progress("at most", total) as advance:
        tree = ha.fit(
            observations, layer=layer, **how, width=width, seed=seed, out=out, force=force, resume=resume, advance=advance
        )
    record = record_of(tree) | {"seconds": round(time.perf_counter() - start, 2), "seed": seed, "out": str(out)}
    if as_json:
        print_record("", record, as_json)
    else:
        print_fit(record)
    if record["verdict"] != "CONVERGED":
        raise typer.Exit(NOT_CONVERGED)


def record_of(tree: Any) -> dict[str, Any]:
    """What a fit found, as a record: verdict, reasons, parameters, kappa."""
    import json

    attrs = tree.attrs
    kappa = tree["posterior"].get("kappa")
    return {
        "verdict": attrs["verdict"],
        "reasons": json.loads(attrs["reasons"]),
        "method": attrs["method"],
        "why": attrs["why"],
        "model": attrs["model"],
        "parameters": json.loads(attrs["parameters"]),
        "kappa": None if kappa is None else kappa.mean(("chain", "draw")).values.tolist(),
    }


def print_fit(record: dict[str, Any]) -> None:
    """The verdict first, then a line a parameter."""
    print(record["verdict"])
    for reason in record["reasons"]:
        print(f"  {reason['message']}")
    print(f"model {record['model']}, method {record['method']} ({record['why']}), {record['seconds']} s -> {record['out']}")
    names = ("mean", "sd", "eti90_lb", "eti90_ub", "rhat", "ess_bulk", "ess_tail")
    print(f"{'':24s}" + "".join(f"{name:>11s}" for name in names))
    for name, row in record["parameters"].items():
        flag = "" if row["identified"] in (True, None) else "  not identified by the data"
        print(f"{name:24s}" + "".join(f"{row[key]:11.5g}" for key in names) + flag)


@takes()
def write_calibration(
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    networks: Annotated[int, typer.Option(help="Networks of a data set.")] = 50,
    tokens: Annotated[int, typer.Option(help="Tokens, with kernel K = I.")] = 4,
    heads: Annotated[int, typer.Option(help="Heads.")] = 2,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network.")] = 16,
    replicates: Annotated[int, typer.Option(help="Data sets, each fitted.")] = 100,
    one_token: Annotated[bool, typer.Option("--one-token", help="Observe the first token only.")] = False,
    method: Annotated[FitMethod, typer.Option(help="How to fit.")] = FitMethod.auto,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check inference on data with known parameters: ranks, coverage of intervals, convergence."""
    import json

    import numpy as np

    import hierattn as ha
    from hierattn.base.files.writing import check_new, whole_file
    from hierattn.base.provenance import provenance
    from hierattn.inference import calibration

    check_new(out, force)
    layer, found = ha.Architecture(heads=heads), []
    design: dict[str, Any] = {"tokens": [0] if one_token else None, "seed": seed, "method": method.value}
    with progress("data sets", replicates) as advance:
        for replicate in calibration.replicates(layer, np.eye(tokens), networks, coordinates, replicates, **design):
            found.append(replicate)
            advance(1)
    record = calibration.summarise(found)
    with whole_file(out, force) as temporary:
        every = [replicate._asdict() for replicate in found]
        temporary.write_text(json.dumps(record | provenance(seed) | {"every_replicate": every}, indent=1) + "\n")
    print_record(f"{replicates} data sets of {networks} networks, {tokens} tokens, {heads} heads -> {out}", record, as_json)
