"""Where points are computed: in this process, by workers of this machine, or on a Dask cluster that exists.

All of them call `evaluate` with the same options, so that results do not depend on the place, nor on the order.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, check_counts, unusable
from hierattn.sweeps.calls import Outcome, evaluate

Task = tuple[int, dict[str, Any]]  # which point, and its options
Place = Callable[[Callable[..., Any], Iterable[Task]], Iterator[tuple[int, Outcome]]]
AHEAD = 4  # points that each worker has before it, so that it never waits and nobody holds many
PATIENCE = 10  # seconds until a scheduler that does not answer is none
DEATHS = 3  # of workers with the same point, until the point is given up
SAME = ("hierattn", "jax", "numpy")  # packages of which workers must have the same version


def here(function: Callable[..., Any], tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome]]:
    """One after the other, in this process."""
    for k, options in tasks:
        yield k, evaluate(function, options)


@contextmanager
def place_of(workers: int | None, scheduler: str | None, say: Callable[[str], Any]) -> Iterator[Place]:
    """Where points are computed; a cluster of our own ends with the sweep."""
    if workers is not None and scheduler is not None:
        raise unusable("scheduler", "workers here or a scheduler elsewhere", "both", "leave one out")
    if workers is None and scheduler is None:
        yield here
        return
    try:
        import distributed
    except ImportError:
        raise unusable("workers", "Dask", "no package distributed", "pip install 'hierattn[cluster]'") from None
    if scheduler is None:
        check_counts(workers=workers)
        how: dict[str, Any] = {"distributed.scheduler.allowed-failures": DEATHS}
        import dask

        with (
            dask.config.set(how),
            distributed.LocalCluster(
                workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            say(f"{workers} workers on this machine; dashboard: {client.dashboard_link}")
            yield Cluster(client, cluster.scheduler_address).run
        return
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        got = f"none that answers ({type(error).__name__})"
        raise unusable("scheduler", f"a Dask scheduler at {scheduler}", got, "start one: dask scheduler") from None
    with client:
        cluster_of = Cluster(client, scheduler)
        cluster_of.check_versions()
        say(f"{len(client.nthreads())} workers of {scheduler}; dashboard: {client.dashboard_link}")
        yield cluster_of.run


def versions() -> dict[str, str]:
    """Of packages that results depend on."""
    return {name: version(name) for name in SAME}


class Cluster:
    """A connection to a Dask scheduler."""

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address

    def check_versions(self) -> None:
        """Workers have the versions of this process."""
        ours = versions()
        try:
            found = self.client.run(versions)
        except Exception as error:  # whatever a worker without our package raises
            got = f"one that cannot run it ({type(error).__name__}: {error})"
            raise unusable("scheduler", f"workers with hierattn {ours['hierattn']}", got, "install it there") from None
        if not found:
            raise unusable("scheduler", f"workers at {self.address}", "none", "start some: dask worker")
        for worker, theirs in found.items():
            for name in SAME:
                if theirs[name] != ours[name]:
                    raise unusable("scheduler", f"{name} {ours[name]} on every worker", f"{theirs[name]} on {worker}")

    def run(self, function: Callable[..., Any], tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome]]:
        """As many points at a time as keep workers busy, in the order in which they end."""
        from distributed import as_completed

        waiting, going = iter(tasks), as_completed()
        self._more(function, waiting, going, AHEAD * max(1, sum(self.client.nthreads().values())))
        for future in going:
            yield future.hierattn_point, self._outcome(future)
            future.release()
            self._more(function, waiting, going, 1)

    def _more(self, function: Callable[..., Any], waiting: Iterator[Task], going: Any, number: int) -> None:
        for _, (k, options) in zip(range(number), waiting, strict=False):
            future = self.client.submit(evaluate, function, options, pure=False)
            future.hierattn_point = k
            going.add(future)

    def _outcome(self, future: Any) -> Outcome:
        """What came back; a point that takes its workers with it has failed."""
        from distributed import KilledWorker

        if future.cancelled() or self.client.status != "running":
            raise self._lost()
        try:
            return future.result()
        except KilledWorker:
            message = f"{DEATHS} or more workers died at this point: out of memory?"
            return Outcome((), np.empty(0), message, np.nan)
        except Exception as error:
            if self.client.status != "running":
                raise self._lost() from None
            return Outcome((), np.empty(0), f"{type(error).__name__}: {error}", np.nan)

    def _lost(self) -> InputError:
        expected = f"the scheduler at {self.address} to stay"
        return unusable("scheduler", expected, "a lost connection", "start it again; --resume goes on (resume=True)")
