"""Times of several functions in one run: interleaved, so that a busy moment hits all of them, and the fastest of each."""

import time
from collections.abc import Callable

import jax


def fastest(functions: dict[str, Callable], repeats: int = 9) -> dict[str, float]:
    """Seconds of the fastest of `repeats` calls of each function, after one to compile."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}
