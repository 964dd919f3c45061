"""The picture of the hierarchy: network -> scores -> coordinates, and why the outputs are not Gaussian.

Left, the generative model as a graph. Middle, one token's outputs given the scores of five networks: Gaussians of different
widths. Right, their average over all networks, the law, against the Gaussian of equal variance.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from plotting import gaussian, main

from hierattn import Architecture, Law, kernels

HEADS, TOKENS, SCORE_SCALE, NETWORKS, SEED = 1, 4, 1.8, 100_000, 0
INK, LAW, GAUSS, SOFT = "#222222", "#b5332e", "#2b5c8a", "#8a8a8a"


def draw_graph(axes: plt.Axes) -> None:
    """Nodes in the notation of the README; a box is a plate."""
    axes.set(xlim=(0, 16), ylim=(0, 10), aspect="equal")
    axes.axis("off")
    for (x, y, width, height), label in [((3.2, 0.2, 12.6, 9.6), "network"), ((9.6, 1.2, 5.6, 4.3), "coordinate")]:
        box = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=.4", fill=False, ec=SOFT, lw=1.2)
        axes.add_patch(box)
        axes.text(x + width - 0.25, y + 0.15, label, ha="right", va="bottom", color=SOFT, fontsize=9, style="italic")
    nodes = {"K": (1.3, 8.0), "p": (5.2, 8.0), "Sigma": (5.2, 3.6), "y": (11.0, 3.6)}
    labels = {"K": "$K$", "p": "$p$", "Sigma": r"$\Sigma(p)$", "y": "$y$"}
    for name, (x, y) in nodes.items():
        axes.add_patch(Circle((x, y), 1.1, fc="#e8e8e8" if name in ("K", "y") else "white", ec=INK, lw=1.3))
        axes.text(x, y, labels[name], ha="center", va="center", fontsize=12, color=INK)
    for start, end in [("K", "p"), ("p", "Sigma"), ("K", "Sigma"), ("Sigma", "y")]:
        (x, y), (x_, y_) = nodes[start], nodes[end]
        shorten = 1.2 / np.hypot(x_ - x, y_ - y)
        ends = [(x + shorten * (x_ - x), y + shorten * (y_ - y)), (x_ - shorten * (x_ - x), y_ - shorten * (y_ - y))]
        axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=12, shrinkA=0, shrinkB=0, color=INK))
    notes = {
        (6.6, 8.4): r"$p \sim N(0,\ \sigma_Q^2\sigma_K^2\ K\otimes K)$",
        (6.6, 7.4): "scores: one draw a network",
        (5.5, 5.85): r"$A = \mathrm{softmax}(p)$",
        (3.6, 1.75): r"$\Sigma = \sigma_V^2\sigma_O^2\, A K A'$",
        (12.35, 4.0): r"$N(0, \Sigma(p))$",
        (12.35, 3.1): "outputs",
    }
    for (x, y), text in notes.items():
        axes.text(x, y, text, fontsize=9.5, va="center", color=INK)
    axes.set_title("the generative model, one head", fontsize=11, color=INK)


def compute(quick: bool) -> dict:
    """Five networks' standard deviations, and the densities of the law and of the Gaussian of equal variance."""
    law = Law(Architecture(heads=HEADS, sigma_q=SCORE_SCALE), kernels.activation("clip", TOKENS))
    marginal, y = law.marginal(), np.linspace(-4.2, 4.2, 401)
    v = np.sort(np.asarray(law.sample_variances(jax.random.key(SEED), NETWORKS // 10 if quick else NETWORKS), float))
    return {
        "y": y.tolist(),
        "widths": np.sqrt(np.quantile(v, [0.005, 0.1, 0.4, 0.7, 0.97])).tolist(),
        "law": marginal.pdf(y).tolist(),
        "gauss": gaussian(y, np.sqrt(marginal.variance)).tolist(),
    }


def draw(results: dict) -> plt.Figure:
    """Graph, conditional densities, marginal density."""
    y = np.array(results["y"])
    figure, (graph, given, marginal) = plt.subplots(1, 3, figsize=(12.5, 3.7), width_ratios=[1.5, 1, 1])
    draw_graph(graph)
    for width, shade in zip(results["widths"], np.linspace(0.75, 0.15, 5), strict=True):
        given.plot(y, gaussian(y, width), color=str(shade), lw=1.6)
    given.set(title="five networks: $y$ given $p$ is Gaussian", xlabel="output $y$", ylabel="density")
    given.set(xlim=(-3.2, 3.2), ylim=(0, None))
    marginal.semilogy(y, results["law"], color=LAW, lw=2.2, label="the law")
    marginal.semilogy(y, results["gauss"], color=GAUSS, lw=1.8, ls=(0, (4, 2)), label="Gaussian of\nequal variance")
    marginal.set(title="all networks: heavier tails", xlabel="output $y$", ylim=(2e-6, 1.5), xlim=(-4.2, 4.2))
    marginal.legend(loc="lower center", fontsize=9)
    return figure


if __name__ == "__main__":
    main("hierarchy", compute, draw)
