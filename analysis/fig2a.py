"""The paper's Figure 2a: a score p_11 at width 256, divided by sqrt(n) and by n, against N(0, 1) (clip inputs)."""

import matplotlib.pyplot as plt
import numpy as np
from plotting import SEED, SERIES, gaussian, main

from hierattn import Architecture
from hierattn.finite import theorem

WIDTH, NETWORKS = 256, 500_000


def compute(quick: bool) -> dict:
    """Histograms and moments of the scores under both scalings."""
    edges, found = np.linspace(-4.5, 4.5, 181), {}
    scores, _ = theorem.scores_and_values(Architecture(), WIDTH, networks=NETWORKS // 10 if quick else NETWORKS, seed=SEED)
    for scaling, p in {"sqrt": scores, "linear": scores / np.sqrt(WIDTH)}.items():
        square = p**2
        found[scaling] = {
            "variance": square.mean(),
            "variance_error": square.std() / np.sqrt(p.size),
            "kurtosis": (square**2).mean() / square.mean() ** 2,
            "kurtosis_error": (square**2 / square.mean() ** 2 - 2 * square * (square**2).mean() / square.mean() ** 3).std()
            / np.sqrt(p.size),
            "density": np.histogram(p, edges, density=True)[0].tolist(),
        }
    a = 1 + 2 / WIDTH
    theory = {"variance": a**2, "kurtosis": 3 * a * (a * (1 + 4 / WIDTH) * (1 + 6 / WIDTH)) ** 2 / a**4}
    return {"edges": edges.tolist(), "scores": found, "theory": theory}


def draw(results: dict) -> plt.Figure:
    """Two histograms and the normal density."""
    edges = np.array(results["edges"])
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    for (scaling, label), style in zip(
        {"linear": "divided by $n$", "sqrt": "divided by $\\sqrt{n}$"}.items(), SERIES, strict=False
    ):
        density = results["scores"][scaling]["density"]
        axes.stairs(density, edges, fill=True, color=style["color"], alpha=0.45, label=f"scores {label}", lw=0)
        axes.stairs(density, edges, color=style["color"], lw=0.8)
    axes.plot(edges, gaussian(edges), color="black", lw=2, label="$N(0, 1)$")
    axes.annotate(
        "vanishing: height\ngoes to infinity with $n$", (0.1, 0.62), (1.2, 0.55), fontsize=8.5, arrowprops={"arrowstyle": "-"}
    )
    axes.set(xlim=(-4, 4), ylim=(0, 0.7), xlabel="score $p_{11}$ at width 256", ylabel="density")
    axes.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main("fig2a", compute, draw)
