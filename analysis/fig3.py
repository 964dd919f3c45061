"""The paper's Figure 3: heads of dimension 64 as in real Transformers, n = 64 H, against the law of infinite head dimension.

Beside the paper's comparison, that with the law that keeps head_dim = 64: what remains is the inputs' randomness.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import GAUSS, LAW, SEED, SERIES, against, main, plot_kl

from hierattn import Architecture, FiniteWidth, RandomInputs
from hierattn.law.marginal import from_draws

HEAD_DIM, HEADS, SAMPLES = 64, (1, 4, 16), 50_000


def compute(quick: bool) -> dict:
    """Densities and both KLs for every number of heads."""
    found = {}
    for H in HEADS[:1] if quick else HEADS:
        law = FiniteWidth(Architecture(heads=H, head_dim=HEAD_DIM), RandomInputs(HEAD_DIM * H))
        samples = SAMPLES // 20 if quick else SAMPLES
        limit, kept = law.limit.marginal(), law.fixed_head_dim.marginal()
        finite = from_draws(law, 0, 10 * samples, SEED, batches=10)
        y = np.linspace(0, 7, 141) * np.sqrt(limit.variance)
        found[str(H)] = {
            "limit": against(finite, limit),
            "kept": against(finite, kept),
            "y": y.tolist(),
            "law": limit.pdf(y).tolist(),
            "law_kept": kept.pdf(y).tolist(),
            "variance": float(limit.variance),
        }
    return {"heads": found}


def draw(results: dict) -> plt.Figure:
    """Tails for every number of heads, and the two KLs."""
    figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.3))
    for (H, found), tail in zip(results["heads"].items(), axes, strict=False):
        y, sd = np.array(found["y"]), np.sqrt(found["variance"])
        run = found["limit"]
        tail.semilogy(run["y"], run["density"], color=SERIES[1]["color"], marker="o", markevery=8, lw=1.2, label="networks")
        tail.semilogy(y, found["law_kept"], color=SERIES[2]["color"], ls=(0, (5, 2)), label="law, head_dim 64")
        tail.semilogy(y, found["law"], **LAW | {"label": "law, head_dim infinite"}, zorder=0.5)
        tail.semilogy(y, np.exp(-(y**2) / (2 * sd**2)) / np.sqrt(2 * np.pi) / sd, **GAUSS | {"label": "Gaussian"}, zorder=0.5)
        heads = "1 head" if H == "1" else f"{H} heads"
        tail.set(xlim=(0, 5.5 * sd), ylim=(1e-6, 3), xlabel="output $y$", title=f"{heads}, width {64 * int(H)}")
    axes[0].set_ylabel("density")
    axes[0].legend(fontsize=7.5, loc="lower left")
    heads, kl = [int(H) for H in results["heads"]], axes[3]
    for name, style, label in (("limit", SERIES[3], "from head_dim infinite"), ("kept", SERIES[1], "from head_dim 64")):
        plot_kl(kl, heads, [found[name] for found in results["heads"].values()], style, label)
    kl.set(xlabel="heads", ylabel="KL(networks || law)", title="distance from the law", xticks=heads)
    kl.set_xticklabels(heads)
    kl.minorticks_off()
    kl.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main("fig3", compute, draw)
