"""Times of several functions in one run: interleaved, so that a busy moment hits all of them, and the fastest of each.

A benchmark's record holds ratios of such times, which differ little from host to host, and says how fast the host was.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import jax

from hierattn.base.files.writing import whole_file
from hierattn.base.provenance import provenance

RESULTS = Path(__file__).parent.parent / "results" / "benchmarks"
ADDITIONS = 10**7


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


def loop_seconds() -> float:
    """How long this host takes for a Python loop of 10^7 additions: the fastest of three."""
    return min(_loop() for _ in range(3))


def _loop() -> float:
    start, total = time.perf_counter(), 0
    for number in range(ADDITIONS):
        total += number
    return time.perf_counter() - start


def record(name: str, ratios: dict[str, float], results: Path = RESULTS) -> None:
    """Write what a benchmark found to analysis/results/benchmarks/NAME.json: description -> ratio."""
    found = {key: float(f"{value:.3g}") for key, value in ratios.items()}
    origin = provenance(0, command=f"python analysis/benchmarks/{name}.py")
    results.mkdir(parents=True, exist_ok=True)
    with whole_file(results / f"{name}.json", force=True) as temporary:
        content = {"ratios": found, "loop_seconds": round(loop_seconds(), 2), **origin}
        temporary.write_text(json.dumps(content, indent=1) + "\n")
