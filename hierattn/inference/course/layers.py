"""Fits of several layers, one after the other: a table with a line for each, and what went wrong with some."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierattn.base.errors import InputError, unusable
from hierattn.base.files.writing import whole_file
from hierattn.inference.course.budget import Budget, budget_of
from hierattn.inference.course.watching import Calling, Watch
from hierattn.observed.layers import read_layers

if TYPE_CHECKING:
    from xarray import DataTree

Several = list[Any] | tuple[Any, ...] | Mapping[str, Any]  # of Observations, or paths
SCALES = ("score_scale", "value_scale")
COLUMNS = ("mean", "eti90_lb", "eti90_ub")
FAILED = "FAILED"
TABLE = "layers.json"


class Layers(NamedTuple):
    """Rows {layer, verdict, method, networks, score_scale, score_scale_eti90_lb, ..., seconds, message}, and fits by name."""

    rows: list[dict[str, Any]]
    fits: "dict[str, DataTree]"

    def __str__(self) -> str:
        return "\n".join(lines(self.rows))


def named_layers(given: Several, observed: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
    """Name -> what gives the observations: of a dict its names, of files theirs, of others their places.

    observed: makes observations of a path, or of what they are already
    """
    if not given:
        raise unusable("observations", "at least one layer", "none")
    if not isinstance(given, Mapping) and all(isinstance(each, (str, Path)) for each in given):
        return read_layers(given)
    named = given if isinstance(given, Mapping) else {f"layer_{k}": each for k, each in enumerate(given)}
    return {str(name): partial(observed, each) for name, each in named.items()}


def fit_layers(
    layers: Mapping[str, Callable[[], Any]],
    fit_one: Callable[..., "DataTree"],
    *,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    budget: Budget | float | str | None = None,
    advance: Callable[[int], Any] | Watch = lambda done: None,
) -> Layers:
    """Fit every layer, whatever becomes of the others.

    - layers: name -> what gives the observations of that layer
    - fit_one: fits observations; takes also out, force, resume, budget and advance
    - out: a folder, into which each fit is written as NAME.nc, and the table as layers.json; with `resume` fits that are there
      and whole are not made again
    - budget: of all layers: each has its share of what is left
    """
    limit, folder = budget_of(budget), None if out is None else Path(out)
    watch = advance if isinstance(advance, Watch) else Calling(advance)
    began, rows, fits = limit.clock(), [], {}
    if folder is not None:
        _check(folder, layers, force, resume)
        folder.mkdir(exist_ok=True)
    for k, (name, make) in enumerate(layers.items()):
        watch.say(f"layer {name}, {k + 1} of {len(layers)}")
        start = limit.clock()
        left = max((limit.seconds - (start - began)) / (len(layers) - k), 1e-3)
        share = replace(limit, seconds=left)
        path = None if folder is None else folder / f"{name}.nc"
        try:
            found = _there(path, resume)
            if found is None:
                more = {"out": path, "force": force or resume, "resume": resume, "budget": share, "advance": watch}
                found = fit_one(make(), **more)
            fits[name], row = found, _row(name, found)
        except Exception as error:  # a layer that failed does not stop the others
            row = _failed(name, error)
            watch.say(f"layer {name} failed: {row['message']}")
        rows.append(row | {"seconds": round(limit.clock() - start, 2)})
    if folder is not None:
        with whole_file(folder / TABLE, force=True) as temporary:
            temporary.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n")
    return Layers(rows, fits)


def _check(folder: Path, layers: Mapping[str, Any], force: bool, resume: bool) -> None:
    """A folder in which nothing is overwritten unasked."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: expected a folder for the fits of {len(layers)} layers, got a file; choose another name")
    if not folder.parent.is_dir():
        raise InputError(f"{folder}: expected a folder to write in, got none; make {folder.parent} first")
    there = [f"{name}.nc" for name in layers if (folder / f"{name}.nc").exists()]
    if there and not (force or resume):
        raise InputError(f"{folder}: expected a folder without {there[0]}, got one that has it; use --force, or --resume")


def _there(path: Path | None, resume: bool) -> "DataTree | None":
    """A fit that is there already, if it is whole: one that its budget ended has an unfinished run beside it."""
    from hierattn.observed.fits import read_fit

    if path is None or not resume or not path.exists() or Path(f"{path}.resume").exists():
        return None
    return read_fit(path)


def _row(name: str, tree: "DataTree") -> dict[str, Any]:
    table = json.loads(tree.attrs["parameters"])
    row: dict[str, Any] = {"layer": name, "verdict": tree.attrs["verdict"], "method": tree.attrs["method"]}
    row |= {"networks": tree["observed_data"].sizes["network"]}
    for scale in SCALES:
        found = table.get(scale, {})
        row |= {scale if key == "mean" else f"{scale}_{key}": found.get(key) for key in COLUMNS}
    first = [each["message"] for each in json.loads(tree.attrs["reasons"]) if each["code"] in SAID]
    return row | {"message": "; ".join(first)}


SAID = ("budget", "heads", "rhat", "ess", "divergences", "ebfmi")  # reasons that a table of layers has room for


def _failed(name: str, error: Exception) -> dict[str, Any]:
    words = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    empty = dict.fromkeys(
        ["method", "networks", *(f"{scale}{end}" for scale in SCALES for end in ("", "_eti90_lb", "_eti90_ub"))]
    )
    return {"layer": name, "verdict": FAILED} | empty | {"message": " ".join(words.split())}


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table: a line for each layer."""
    wide = max(5, *(len(row["layer"]) for row in rows))
    yield f"{'layer':{wide}s}  {'verdict':14s}{'score_scale':>24s}{'value_scale':>24s}{'networks':>10s}{'seconds':>9s}"
    for row in rows:
        scales = "".join(f"{_interval(row, scale):>24s}" for scale in SCALES)
        number = "-" if row["networks"] is None else str(row["networks"])
        line = f"{row['layer']:{wide}s}  {row['verdict']:14s}{scales}{number:>10s}{row['seconds']:9.1f}"
        yield f"{line}  {row['message']}".rstrip()


def _interval(row: dict[str, Any], scale: str) -> str:
    """Mean and 90 % interval."""
    values = [row[name] for name in (scale, f"{scale}_eti90_lb", f"{scale}_eti90_ub")]
    return "-" if None in values else "{:.4g} ({:.3g}, {:.3g})".format(*values)
