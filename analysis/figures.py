"""Every figure: those of the paper at its full sample counts, and our own findings. `make figures` runs this.

    python analysis/figures.py [--quick] [--out DIR] [NAME ...]

One process for all of them, so that what is compiled for one serves the others.
"""

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

NAMES = (
    "hierarchy",
    *("fig1", "fig2a", "fig2b", "fig3", "fig4", "fig5"),
    *("kl_rate", "kurtosis_heads", "head_dim", "theorem_sums", "gaussian_safe"),
)
sys.path.insert(0, str(Path(__file__).parent))
if "--quick" in sys.argv:  # most of a quick run is compilation
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")


def main() -> None:
    """All figures, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="fewer networks: seconds instead of minutes")
    parser.add_argument("--out", default=str(Path(__file__).parent / "figures"))
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no such figure: {', '.join(sorted(unknown))} (there are {', '.join(NAMES)})")
    start = time.perf_counter()
    for name in options.names or NAMES:
        script = import_module(name)
        import_module("plotting").main(name, script.compute, script.draw, ["--out", options.out, *["--quick"] * options.quick])
    print(f"all figures: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
