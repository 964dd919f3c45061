"""Every figure: those of the paper at its full sample counts, and our own findings. `make figures` runs this.

    python analysis/figures.py [--quick] [--out DIR] [NAME ...]

Two processes share the work, a group of figures each: what is compiled for one figure serves the next, and, kept in
figures/compiled, the next run.
"""

import argparse
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
GROUPS = (
    ("fig5", "fig1", "fig4", "kl_rate", "hierarchy"),
    ("fig2b", "fig2a", "kurtosis_heads", "head_dim", "fig3", "gaussian_safe", "theorem_sums"),
)
NAMES = tuple(name for group in GROUPS for name in group)


def run(names: list[str], options: list[str]) -> None:
    """Some figures, one after another."""
    sys.path.insert(0, str(HERE))
    for name in names:
        script = import_module(name)
        import_module("plotting").main(name, script.compute, script.draw, options)


def start_on(core: int, command: list) -> subprocess.Popen:
    """A process on a core of its own, where the system knows such things: two that share cores wait for each other."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return subprocess.Popen(command)
    half = cores[core :: len(GROUPS)]
    return subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, half))


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
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
    if chosen.names:
        run(chosen.names, options)
        return
    start = time.perf_counter()
    running = [start_on(core, [sys.executable, __file__, *group, *options]) for core, group in enumerate(GROUPS)]
    failed = max(process.wait() for process in running)
    print(f"all figures: {time.perf_counter() - start:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
