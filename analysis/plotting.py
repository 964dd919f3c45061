"""What the figure scripts share: one look, one way to run, one way to keep the numbers.

A script has `compute(quick) -> dict` (everything it prints or draws) and `draw(results) -> Figure`, and ends in `main`. It
writes NAME.png, NAME.pdf (not if quick) and NAME.json (numbers, errors, command, seed, versions) into analysis/figures.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from hierattn import FiniteWidth
from hierattn.base.files.writing import whole_file
from hierattn.base.provenance import provenance
from hierattn.law.marginal import Marginal, from_draws

HERE = Path(__file__).parent
SEED = 0
LAW = {"color": "black", "lw": 2.2, "label": "the law"}
GAUSS = {"color": "#888888", "lw": 1.8, "ls": (0, (1, 1.2)), "label": "Gaussian of infinitely many heads"}
SERIES = [  # told apart by line style and marker as well as by colour, from light to dark
    {"color": "#e6a12b", "ls": "-", "marker": "o"},
    {"color": "#d1495b", "ls": (0, (6, 2)), "marker": "s"},
    {"color": "#2e7fb8", "ls": (0, (4, 1.5, 1, 1.5)), "marker": "^"},
    {"color": "#1b3a5c", "ls": (0, (2, 1.5)), "marker": "D"},
    {"color": "#5b8e3e", "ls": (0, (8, 1.5, 1, 1.5, 1, 1.5)), "marker": "v"},
]
STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "figure.constrained_layout.use": True,
    "figure.dpi": 160,
    "svg.hashsalt": "hierattn",
}
QUICK = {  # margins that fit everywhere, more or less, instead of a layout that takes as long as the drawing
    "figure.constrained_layout.use": False,
    "figure.subplot.left": 0.06,
    "figure.subplot.right": 0.98,
    "figure.subplot.bottom": 0.16,
    "figure.subplot.top": 0.88,
    "figure.subplot.wspace": 0.3,
}


def trials(law: FiniteWidth, limit: Marginal, samples: int, count: int = 10) -> dict:
    """`count` trials of `samples` fresh networks each, against a limit."""
    return against(from_draws(law, 0, samples * count, SEED, batches=count), limit)


def against(finite: Marginal, limit: Marginal) -> dict:
    """Density on a grid, KL of every trial (a batch of the draws), KL of all of them with its error.

    Bins of log v are linear in the draws, so a trial's density is what all of them have more than all but it.
    """
    count = len(finite.nodes.x) - 1
    grid = np.linspace(0, 14, 1401) * np.sqrt(limit.variance)
    step, f = grid[1], limit.pdf(grid)
    rows = finite.each("pdf", grid)

    def divergence(g: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where((g > 0) & (f > 0), g * np.log(g / f), 0.0)
        return float(step * (2 * terms.sum() - terms[0]))

    left_out = np.array([divergence(row) for row in rows[1:]])
    floor = (count - 1) * (left_out.mean() - divergence(rows[0]))
    each = [divergence(count * rows[0] - (count - 1) * row) - count * floor for row in rows[1:]]
    return {
        "kl": divergence(rows[0]) - floor,
        "kl_error": float(left_out.std(ddof=1) * (count - 1) / np.sqrt(count)),
        "kl_trials": each,
        "excess_kurtosis": float(finite.excess_kurtosis),
        "excess_kurtosis_error": float(finite.standard_error("excess_kurtosis")),
        "variance": float(finite.variance),
        "density": rows[0][:701:5].tolist(),
        "y": grid[:701:5].tolist(),
    }


def gaussian(y: np.ndarray, sd: float = 1.0) -> np.ndarray:
    """The density of N(0, sd^2)."""
    return np.exp(-(y**2) / (2 * sd**2)) / (np.sqrt(2 * np.pi) * sd)


def both_sides(y: list, density: list) -> tuple[np.ndarray, np.ndarray]:
    """An even function known for y >= 0, on both sides."""
    return np.concatenate([-np.array(y)[:0:-1], y]), np.concatenate([np.array(density)[:0:-1], density])


def plot_kl(axes: plt.Axes, x: list, runs: list[dict], style: dict, label: str) -> None:
    """KL of every trial as dots, of all with its error as a line."""
    for at, run in zip(x, runs, strict=True):
        axes.plot([at] * len(run["kl_trials"]), run["kl_trials"], ".", color=style["color"], alpha=0.35, ms=3.5, zorder=1)
    values, errors = ([run[name] for run in runs] for name in ("kl", "kl_error"))
    axes.errorbar(x, values, errors, **style, label=label, lw=1.3, capsize=2)
    axes.set(xscale="log", yscale="log")


def main(name: str, compute, draw, arguments: list[str] | None = None) -> None:
    """Run a figure script: compute, keep the numbers, draw."""
    parser = argparse.ArgumentParser(description=sys.modules[compute.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer networks: seconds instead of minutes")
    parser.add_argument("--out", type=Path, help="folder (default: analysis/figures, and figures/quick for --quick)")
    options = parser.parse_args(arguments)
    options.out = options.out or HERE / "figures" / ("quick" if options.quick else "")
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    results = compute(options.quick)
    command = f"python analysis/{name}.py" + (" --quick" if options.quick else "")
    record = {**provenance(SEED, command=command), "seconds": round(time.perf_counter() - start, 1), **results}
    with whole_file(options.out / f"{name}.json", force=True) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    with mpl.rc_context(STYLE | QUICK if options.quick else STYLE):
        figure = draw(results)
        figure.savefig(options.out / f"{name}.png", metadata={"Software": None}, dpi=60 if options.quick else "figure")
        if not options.quick:
            figure.set_layout_engine("none")  # it stays as it is
            figure.savefig(options.out / f"{name}.pdf", metadata={"CreationDate": None})
        plt.close(figure)
    endings = ".png, .json" if options.quick else ".png, .pdf, .json"
    print(f"{options.out / name}{endings}  ({time.perf_counter() - start:.1f} s)", flush=True)
