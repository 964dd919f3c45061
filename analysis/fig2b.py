"""The paper's Figure 2b: width 256 with 1 and 256 heads, against the law and the Gaussian of infinitely many heads."""

import matplotlib.pyplot as plt
import numpy as np
from fig1 import draw_densities
from plotting import main, trials

from hierattn import Architecture, FiniteWidth, RandomInputs

WIDTH, HEADS, SAMPLES = 256, (1, 256), 50_000


def compute(quick: bool) -> dict:
    """Densities for both numbers of heads."""
    found = {}
    for H in (2,) if quick else HEADS:  # for two heads the other figures compile too
        law = FiniteWidth(Architecture(heads=H), RandomInputs(WIDTH))
        limit = law.limit.marginal()
        y = np.linspace(0, 7, 141) * np.sqrt(limit.variance)
        run = trials(law, limit, SAMPLES // 20 if quick else SAMPLES)
        limits = {"y": y.tolist(), "law": limit.pdf(y).tolist(), "variance": float(limit.variance)}
        limits["excess_kurtosis"] = float(limit.excess_kurtosis)
        found[str(H)] = {"widths": {str(WIDTH): run}, "limit": limits}
    return {"heads": found}


def draw(results: dict) -> plt.Figure:
    """A pair of panels for each number of heads."""
    figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.3))
    for (H, found), pair in zip(results["heads"].items(), (axes[:2], axes[2:]), strict=False):
        draw_densities(*pair, found)
        run = found["widths"][str(WIDTH)]
        heads = "1 head" if H == "1" else f"{H} heads"
        pair[0].set_title(f"{heads}: density")
        pair[1].set_title(
            f"{heads}: excess kurtosis\n{run['excess_kurtosis']:.3f}, the law's {found['limit']['excess_kurtosis']:.4f}"
        )
    return figure


if __name__ == "__main__":
    main("fig2b", compute, draw)
