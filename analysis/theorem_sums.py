"""The theorem itself: (1/n) sum of psi(y) over a network's coordinates goes to E[psi | p] in distribution over networks.

Two heads, four tokens, clip inputs. Left, psi = y^2 in 5,000 networks a width, against the law. Middle, Wasserstein's
distance for five functions psi. Right, scores and values become independent.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, main

from hierattn import Architecture, FiniteWidth, RandomInputs
from hierattn.finite import theorem

WIDTHS, NETWORKS, PAIRS = (16, 64, 256, 1024), 5_000, 100_000


def compute(quick: bool) -> dict:
    """Distances, dependence and quantiles of all widths."""
    layer, shares, found = Architecture(heads=2), np.linspace(0.005, 0.995, 100), {}
    networks, pairs = (2**13, 2**16) if quick else (NETWORKS, PAIRS)
    limit = FiniteWidth(layer, RandomInputs(1)).limit
    limits = [theorem.limit_averages(limit, networks, SEED + 1 + i) for i in range(4)]
    for n in WIDTHS[:1] if quick else WIDTHS:
        averages = theorem.finite_averages(FiniteWidth(layer, RandomInputs(n)), networks, SEED)
        correlation, error = theorem.dependence(layer, n, networks=pairs, seed=SEED)
        found[str(n)] = {
            "distances": theorem.distances(averages, limits),
            "dependence": correlation,
            "dependence_error": error,
            "quantiles": np.quantile(averages["y^2"], shares).tolist(),
        }
    law = np.quantile(np.concatenate([averages["y^2"] for averages in limits]), shares)
    return {"shares": shares.tolist(), "law": law.tolist(), "widths": found}


def draw(results: dict) -> plt.Figure:
    """Distribution functions, distances, dependence."""
    figure, (distribution, distance, dependence) = plt.subplots(1, 3, figsize=(12, 3.6))
    widths, runs = [int(n) for n in results["widths"]], list(results["widths"].values())
    for n, run, style in zip(widths, runs, SERIES, strict=False):
        distribution.plot(run["quantiles"], results["shares"], color=style["color"], ls=style["ls"], label=f"width {n}")
    distribution.plot(results["law"], results["shares"], color="black", lw=2.2, zorder=0.5, label="$E[y^2 | p]$, the law")
    distribution.set(xlim=(0, 1), xlabel=r"$\frac{1}{n}\sum_\alpha y_\alpha^2$ of a network", ylabel="share of networks")
    distribution.legend(loc="lower right")
    labels = {"y^2": "$y^2$", "|y|": "$|y|$", "1(|y|>t)": "$1(|y|>1)$", "cos(ty)": "$\\cos y$", "y^i y^j": "$y^i y^j$"}
    for (name, label), style in zip(labels.items(), SERIES, strict=True):
        distance.plot(widths, [run["distances"][name][0] for run in runs], **style, label=label)
    distance.axhline(np.mean([run["distances"]["y^2"][1] for run in runs]), color="#888888", ls=":", label="the law and itself")
    distance.set(ylabel="Wasserstein distance / s.d. of the law", title="average of $\\psi$ against $E[\\psi | p]$")
    values, errors = ([run[name] for run in runs] for name in ("dependence", "dependence_error"))
    dependence.errorbar(widths, values, errors, **SERIES[3] | {"ls": "-"}, capsize=2, label="networks")
    dependence.plot(widths, [4 / n for n in widths], color="#888888", ls=":", label="$4/n$")
    dependence.set(ylabel="correlation of squares", title="score $p_{11}$ and value $\\tilde v^1$ of a head")
    for axes in (distance, dependence):
        axes.set(xscale="log", yscale="log", xlabel="width $n$")
        axes.set_xticks(widths, widths)
        axes.minorticks_off()
        axes.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main("theorem_sums", compute, draw)
