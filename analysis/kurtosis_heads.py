"""Excess kurtosis is c / H in the law, and has a part that no number of heads removes at finite width.

Four tokens, clip inputs. The law: .2433 / H. Width n: .2433 / H + (18.9 + 15.9 / H) / n to first order, because all heads of a
network look at the same random inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import LAW, SEED, SERIES, main

from hierattn import Architecture, FiniteWidth, Law, RandomInputs, kernels
from hierattn.law.marginal import from_draws

HEADS, WIDTHS, NETWORKS = (1, 4, 16, 64), (256, 1024, 4096), 2**20


def compute(quick: bool) -> dict:
    """Kurtosis of the law and of every width."""
    heads, networks = (HEADS[:1], 2**15) if quick else (HEADS, NETWORKS)
    law = {str(H): Law(Architecture(heads=H), kernels.activation("clip", 4)).moments().excess_kurtosis for H in heads}
    widths = WIDTHS[:2] if quick else WIDTHS
    found: dict = {str(n): {} for n in widths}
    for n in widths:
        for H in heads:
            finite = from_draws(FiniteWidth(Architecture(heads=H), RandomInputs(n)), 0, max(networks // H, 2**12), SEED)
            error = float(finite.standard_error("excess_kurtosis"))
            found[str(n)][str(H)] = {"excess_kurtosis": float(finite.excess_kurtosis), "excess_kurtosis_error": error}
    return {"law": law, "widths": found}


def draw(results: dict) -> plt.Figure:
    """One line a width."""
    figure, axes = plt.subplots(figsize=(5.6, 3.8))
    heads = np.array([int(H) for H in results["law"]])
    axes.plot(heads, list(results["law"].values()), **LAW | {"label": "the law: $c / H$"})
    for (n, runs), style in zip(results["widths"].items(), SERIES, strict=False):
        values, errors = (
            np.array([run[name] for run in runs.values()]) for name in ("excess_kurtosis", "excess_kurtosis_error")
        )
        axes.errorbar(heads, values, errors, **style, capsize=2, label=f"width {n}")
        first_order = 0.24332 / heads + (18.9 + 15.9 / heads) / int(n)
        axes.plot(heads, first_order, color=style["color"], lw=0.7)
    axes.plot([], [], color="#555555", lw=0.7, label="first order in $1/n$")
    axes.set(xscale="log", yscale="log", xlabel="heads $H$", ylabel="excess kurtosis of one output")
    axes.set_xticks(heads, heads)
    axes.minorticks_off()
    axes.legend()
    return figure


if __name__ == "__main__":
    main("kurtosis_heads", compute, draw)
