"""Every figure: those of the paper at its full sample counts, and our own findings. `make figures` runs this.

    python analysis/figures.py [--quick] [--out DIR] [NAME ...]

Two processes share the work. What is compiled for one figure serves the others and, kept in figures/compiled, the next run.
"""

import argparse
import multiprocessing
import os
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = (  # the longest first, and what others compile for a figure before it
    *("fig5", "theorem_sums", "fig4", "gaussian_safe", "fig2b", "head_dim", "kl_rate", "kurtosis_heads", "fig1", "fig2a"),
    *("hierarchy", "fig3", "depth_tails", "trainability"),
)
PROCESSES = 2


def run(name: str, options: list[str]) -> None:
    """One figure."""
    sys.path.insert(0, str(HERE))
    script = import_module(name)
    import_module("plotting").main(name, script.compute, script.draw, options)


def keep_to(cores: Any) -> None:
    """This process stays on cores of its own, where the system knows such things: two that share them wait for each other."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores.get())


def run_all(options: list[str]) -> None:
    """All figures, shared among processes."""
    context = multiprocessing.get_context("spawn")
    every, shares = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [], context.SimpleQueue()
    for share in range(PROCESSES):
        shares.put(every[share::PROCESSES] or every)
    with context.Pool(PROCESSES, keep_to, (shares,)) as pool:
        for _ in pool.imap_unordered(partial(run, options=options), NAMES):
            pass


def main() -> None:
    """All figures in two processes, or those named in this one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="fewer networks: seconds instead of minutes")
    parser.add_argument("--out", help="folder (default: analysis/figures, and figures/quick for --quick)")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(NAMES)
    if unknown:
        parser.error(f"no such figure: {', '.join(sorted(unknown))} (there are {', '.join(NAMES)})")
    options = [*(["--out", chosen.out] if chosen.out else []), *["--quick"] * chosen.quick]
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE / "figures" / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    if chosen.quick:  # most of a quick run is compilation
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true")
    for name in chosen.names:
        run(name, options)
    if not chosen.names:
        start = time.perf_counter()
        run_all(options)
        print(f"all figures: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
