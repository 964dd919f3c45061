"""Work of several chains on all cores: JAX computes outside Python's lock, so threads suffice."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


def in_threads(function: Callable[[Any], Any], parts: Sequence[Any], compiled: bool) -> list[Any]:
    """Function of every part, in float64 and finished; the first alone if it has yet to be compiled."""

    def of(part: Any) -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(function(part))

    first = [] if compiled else [of(parts[0])]
    with ThreadPoolExecutor(cores()) as pool:
        return [*first, *pool.map(of, parts[len(first) :])]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
