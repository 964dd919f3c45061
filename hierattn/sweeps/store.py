"""Results on disk: a Zarr group with one chunk for each point, written whole; what is there is not computed again.

- `results`: dims of the points and `quantity`, all numbers of a point one after the other, NaN where there are none yet
- `message`: why a point has no numbers, empty if it has
- coordinates of the dims; attributes: the plan, its hash, the layout of the numbers, provenance
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.sweeps.calls import Layout, Outcome, Quantity
from hierattn.sweeps.plan import Plan
from hierattn.sweeps.points import POINT

QUANTITY, SECONDS = "quantity", "seconds"
OWN = 1  # numbers of ours before those of the function: the seconds that a point took


class Store:
    """A sweep's file, for the process that runs the sweep."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan = path, plan
        self.layout: Layout | None = None
        self._group: Any = None

    def create(self, origin: dict[str, Any], force: bool) -> None:
        """A new file, without results; it appears whole."""
        import zarr

        check_free(self.path, force)
        temporary = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        try:
            temporary.chmod(0o755)
            group = zarr.open_group(temporary, mode="w")
            points = self.plan.points
            group.attrs.update({**origin, "plan": json.dumps(self.plan.record()), "plan_sha256": self.plan.sha256})
            for name, (dim, values) in points.labels().items():
                kind = np.asarray(values).dtype if not isinstance(values[0], str) else str
                array = group.create_array(name, shape=(len(values),), dtype=kind, dimension_names=[dim])
                array[:] = np.asarray(values)
            chunk = (1,) * len(points.shape)
            group.create_array("message", shape=points.shape, chunks=chunk, dtype=str, dimension_names=[*points.dims])
            if self.path.exists():
                shutil.rmtree(self.path)
            temporary.rename(self.path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._group = zarr.open_group(self.path, mode="r+")

    def open(self, origin: dict[str, Any]) -> None:
        """One that is there, of the same plan and the same versions."""
        import zarr

        group = open_group(self.path, "r+")
        known, ours = json.loads(group.attrs["plan"]), self.plan.record()
        if group.attrs["plan_sha256"] != self.plan.sha256:
            differs = next((name for name in ours if known.get(name) != ours[name]), "plan")
            was, now = (json.dumps(record.get(differs))[:80] for record in (known, ours))
            remedy = "give the same plan, or another file"
            raise unusable("resume", f"{differs} = {was}, as when the sweep began", now, remedy)
        for name, now in origin.items():
            if name.startswith("version_") and group.attrs.get(name) != now:
                was, words = group.attrs.get(name), name.replace("version_", "version of ")
                raise unusable("resume", f"{words} = {was}, as when the sweep began", now, "use that, or --force to begin anew")
        self._group = zarr.open_group(self.path, mode="r+")
        if "layout" in group.attrs:
            self.layout = layout_from(group.attrs["layout"])

    def done(self) -> np.ndarray:
        """Which points have their numbers."""
        if self.layout is None:
            return np.zeros(self.plan.points.shape, bool)
        return np.isfinite(self._group["results"][..., 0])

    def write(self, k: int, outcome: Outcome) -> Outcome:
        """Keep what became of a point; numbers that are not those of other points are a failure too."""
        place = self.plan.points.place(k)
        if not outcome.message and self.layout is None:
            self._begin(outcome.layout)
        outcome = outcome.like(self.layout)
        if outcome.message:
            self._group["message"][place] = outcome.message
            return outcome
        self._group["results"][place] = np.concatenate([[outcome.seconds], outcome.numbers])
        if self._group["message"][place].item():  # of an earlier attempt
            self._group["message"][place] = ""
        return outcome

    def _begin(self, layout: Layout) -> None:
        """As soon as it is known what a point returns."""
        points = self.plan.points
        length = OWN + sum(int(np.prod(each.shape)) for each in layout)
        how: dict[str, Any] = {"dtype": "f8", "fill_value": np.nan, "compressors": None}
        how |= {"dimension_names": [*points.dims, QUANTITY], "chunks": (*(1,) * len(points.shape), length)}
        self._group.create_array("results", shape=(*points.shape, length), **how)
        names = self._group.create_array(QUANTITY, shape=(length,), dtype=str, dimension_names=[QUANTITY])
        names[:] = np.array([SECONDS, *(f"{q.name}{_index(i)}" for q in layout for i in np.ndindex(q.shape))])
        self._group.attrs["layout"] = [[q.name, list(q.dims), list(q.shape)] for q in layout]
        self.layout = layout


def _index(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]" if place else ""


def layout_from(record: Any) -> Layout:
    """A layout as it is written."""
    return tuple(Quantity(name, tuple(dims), tuple(shape)) for name, dims, shape in record)


def check_free(path: Path, force: bool) -> None:
    """A path where a sweep may be written."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a folder to write in, got none; make {path.parent} first")
    if path.is_file():
        raise InputError(f"{path}: expected a folder that ends in .zarr, got a file; choose another name")
    if path.exists() and not force:
        raise InputError(f"{path}: expected a new sweep, got one that exists; use --resume, --force, or another name")
    if path.exists() and not (path / "zarr.json").exists():
        raise InputError(f"{path}: expected a sweep to overwrite, got a folder of another kind; choose another name")


def open_group(path: str | Path, mode: str = "r") -> Any:
    """The group of a sweep's file."""
    import zarr

    try:
        group = zarr.open_group(path, mode=mode)  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: expected a sweep, got {type(error).__name__}; check the path") from None
    if "plan" not in group.attrs:
        raise InputError(f"{path}: expected a sweep, got a Zarr group without a plan; check the path")
    return group


def dataset(labels: dict[str, tuple[str, list[Any]]], layout: Layout, values: np.ndarray, message: np.ndarray) -> Any:
    """The results by name, as xarray: dims of the points first.

    - values: numbers of every point along the last axis, ours before the function's
    """
    import xarray as xr

    dims = tuple(dict.fromkeys(dim for dim, _ in labels.values()))
    variables: dict[str, Any] = {SECONDS: (dims, values[..., 0])} if layout else {}
    start = OWN
    for q in layout:
        length = int(np.prod(q.shape))
        part = values[..., start : start + length].reshape(*message.shape, *q.shape)
        variables[q.name], start = ((*dims, *q.dims), part), start + length
    coordinates = {name: (dim, np.asarray(x)) for name, (dim, x) in labels.items()}
    return xr.Dataset(variables | {"message": (dims, message.astype(object))}, coordinates)


def read_sweep(path: str | Path) -> Any:
    """A sweep's file as an xarray.Dataset: a variable for each quantity, dims of its points first.

    NaN stands where a point has no numbers; `message` says why, or is empty if it was not reached. `seconds` is how long a
    point took. Attributes hold the plan, its hash and provenance.
    """
    group = open_group(path)
    record, message = json.loads(group.attrs["plan"])["over"], group["message"][:]
    names = list(record) if isinstance(record, dict) else list(record[0])
    labels = {name: (name if isinstance(record, dict) else POINT, group[name][:].tolist()) for name in names}
    layout = layout_from(group.attrs["layout"]) if "layout" in group.attrs else ()
    values = group["results"][:] if layout else np.empty((*message.shape, 0))
    found = dataset(labels, layout, values, np.asarray(message))
    found.attrs = {name: x for name, x in group.attrs.items() if name != "layout"}
    return found
