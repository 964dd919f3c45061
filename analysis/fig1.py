"""The paper's Figure 1: networks of two heads and four tokens approach the law as their width grows (clip inputs).

10 trials of 50,000 fresh networks for each width, one output each; densities average Gaussians over networks.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import GAUSS, LAW, SERIES, both_sides, gaussian, main, plot_kl, trials

from hierattn import Architecture, FiniteWidth, RandomInputs

WIDTHS, HEADS, TOKENS = (16, 64, 256, 1024), 2, 4


def compute(quick: bool, activation: str = "clip", tokens: int = TOKENS, samples: int = 50_000) -> dict:
    """Densities and KL of all widths."""
    layer, runs = Architecture(heads=HEADS), {}
    limit = FiniteWidth(layer, RandomInputs(1, tokens, activation)).limit.marginal()
    for n in WIDTHS[: 3 if activation == "clip" else 2] if quick else WIDTHS:
        law = FiniteWidth(layer, RandomInputs(n, tokens, activation))
        runs[n] = trials(law, limit, samples // 10 if quick else samples)
    y = np.linspace(0, 7, 141) * np.sqrt(limit.variance)
    limits = {"y": y.tolist(), "law": limit.pdf(y).tolist(), "variance": float(limit.variance)}
    return {"widths": {str(n): run for n, run in runs.items()}, "limit": limits}


def draw_densities(axes: plt.Axes, tail: plt.Axes, results: dict) -> None:
    """Densities, and their right tails on a logarithmic axis."""
    limit = results["limit"]
    y, sd = np.array(limit["y"]), np.sqrt(limit["variance"])
    for (n, run), style in zip(results["widths"].items(), SERIES, strict=False):
        axes.plot(*both_sides(run["y"], run["density"]), color=style["color"], ls=style["ls"], label=f"width {n}")
        tail.semilogy(run["y"], run["density"], color=style["color"], ls=style["ls"])
    axes.plot(*both_sides(y, limit["law"]), **LAW, zorder=0.5)
    axes.plot(*both_sides(y, gaussian(y, sd)), **GAUSS, zorder=0.6)
    tail.semilogy(y, limit["law"], **LAW, zorder=0.5)
    tail.semilogy(y, gaussian(y, sd), **GAUSS, zorder=0.6)
    axes.set(xlim=(-3.4 * sd, 3.4 * sd), ylim=(0, None), xlabel="output $y$", ylabel="density", title="density")
    tail.set(xlim=(0, 5.5 * sd), ylim=(1e-6, 3), xlabel="output $y$", title="its right tail")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend([*handles[-2:], *handles[:-2]], [*labels[-2:], *labels[:-2]], loc="upper left", fontsize=7, handlelength=2.2)
    axes.set_ylim(0, 1.45 * max(limit["law"]))


def draw(results: dict, title: str = "") -> plt.Figure:
    """Densities, tails, KL."""
    figure, (density, tail, kl) = plt.subplots(1, 3, figsize=(10.5, 3.4))
    draw_densities(density, tail, results)
    widths = [int(n) for n in results["widths"]]
    runs = list(results["widths"].values())
    plot_kl(kl, widths, runs, {**SERIES[3], "ls": "-"}, "KL, all trials together")
    kl.plot(widths, [runs[-1]["kl"] * (widths[-1] / n) ** 2 for n in widths], color="#888888", ls=":", label="$\\propto 1/n^2$")
    kl.set(xlabel="width $n$", ylabel="KL(width $n$ || law)", xticks=widths, title="distance from the law (dots: trials)")
    kl.set_xticklabels(widths)
    kl.minorticks_off()
    kl.legend()
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


if __name__ == "__main__":
    main("fig1", compute, draw)
