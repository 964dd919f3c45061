"""A function at every point of a grid."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.base.provenance import provenance
from hierattn.sweeps.calls import Layout, Outcome
from hierattn.sweeps.places import place_of
from hierattn.sweeps.plan import Plan, plan
from hierattn.sweeps.points import Over
from hierattn.sweeps.store import OWN, Store, check_free, dataset, read_sweep


def sweep(
    function: Callable[..., Any] | str,
    over: Over,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    advance: Callable[[int], Any] = lambda done: None,
    say: Callable[[str], Any] = lambda message: None,
) -> Any:
    """A function at every point of a grid, as an xarray.Dataset with the options as dims.

    - `function`: "law", "compare", "depth", "fit", "diagnose", "replicate" (one of a calibration), or your own, in a file
      "FILE.py:NAME". It takes options by name and returns a dict of numbers, arrays or xarray.DataArray, of the same names and
      shapes at every point.
    - `over`: a dict of lists, all combinations of which are points; or a list of dicts, the points.
    - `settings`: options that all points share.
    - `seed`: each point has a seed of its own, made of this one and of the point's options; a larger grid has the same numbers
      where it has the same points.
    - `out`: a Zarr file with one chunk for each point. With `resume` a sweep that ended early goes on; points that failed are
      tried again.
    - `workers`: processes of this machine; `scheduler`: the address of a Dask cluster. Results are the same bits in any case.
      In a script `workers` needs `if __name__ == "__main__":` around what the script does.
    - `advance`: called with 1 after each point, at first with the number of those that were there; `say`: with lines to read.

    A point that fails does not stop the others: its numbers are NaN, and `message` says why.

    >>> import hierattn as ha
    >>> found = ha.sweep("law", over={"heads": [1, 2], "score_scale": [0.5, 1.0]}, settings={"moments": True})
    >>> found["excess_kurtosis"].sel(heads=2, score_scale=1.0).item()
    0.12165921...
    """
    return carry_out(
        plan(function, over, settings, seed),
        out=out,
        force=force,
        resume=resume,
        workers=workers,
        scheduler=scheduler,
        advance=advance,
        say=say,
    )


def carry_out(
    planned: Plan,
    *,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    advance: Callable[[int], Any] = lambda done: None,
    say: Callable[[str], Any] = lambda message: None,
) -> Any:
    """The sweep of a plan; the rest as in `sweep`."""
    if resume and out is None:
        raise unusable("resume", "the file of the sweep that goes on", "no out")
    path = None if out is None else Path(out)
    if path is not None and not (resume and path.exists()):
        check_free(path, force)
    with place_of(workers, scheduler, say) as place:  # a cluster that does not answer is known before anything is written
        kept: Store | Kept = Kept(planned) if path is None else Store(path, planned)
        if isinstance(kept, Store):
            origin = provenance(planned.seed)
            if resume and kept.path.exists():
                kept.open(origin)
            else:
                kept.create(origin, force)
        done = kept.done()
        advance(int(done.sum()))
        for k, outcome in place(planned.call.function, _tasks(planned, done)):
            if said := kept.write(k, outcome).message:
                say(f"{_words(planned.points.point(k))}: {said}")
            advance(1)
    return read_sweep(path) if path is not None else kept.dataset()  # type: ignore[union-attr]


def _tasks(planned: Plan, done: np.ndarray) -> Iterator[tuple[int, dict[str, Any]]]:
    """Points that are to be computed, with their options."""
    for k in range(len(planned.points)):
        if not done[planned.points.place(k)]:
            yield k, planned.options(k)


def _words(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.items())


class Kept:
    """Results in memory, where no file is written."""

    def __init__(self, planned: Plan) -> None:
        self.plan = planned
        self.layout: Layout | None = None
        self.values = np.empty((*planned.points.shape, OWN))
        self.message = np.full(planned.points.shape, "", object)

    def done(self) -> np.ndarray:
        """Nothing yet."""
        return np.zeros(self.plan.points.shape, bool)

    def write(self, k: int, outcome: Outcome) -> Outcome:
        """Keep what became of a point."""
        if not outcome.message and self.layout is None:
            self.layout = outcome.layout
            self.values = np.full((*self.plan.points.shape, OWN + len(outcome.numbers)), np.nan)
        place, outcome = self.plan.points.place(k), outcome.like(self.layout)
        if outcome.message:
            self.message[place] = outcome.message
        else:
            self.values[place] = [outcome.seconds, *outcome.numbers]
        return outcome

    def dataset(self) -> Any:
        """As xarray."""
        found = dataset(self.plan.points.labels(), self.layout or (), self.values, self.message)
        found.attrs = provenance(self.plan.seed, plan_sha256=self.plan.sha256)
        return found
