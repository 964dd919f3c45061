"""The paper's Figure 4: as Figure 1 with more tokens, 16 and 64. At width 16 there are more tokens than dimensions."""

import fig1
import matplotlib.pyplot as plt
from fig1 import draw_densities
from plotting import SERIES, main, plot_kl

TOKENS = (16, 64)


def compute(quick: bool) -> dict:
    """Figure 1 for every number of tokens."""
    return {"tokens": {str(s): fig1.compute(quick, tokens=s) for s in ((fig1.TOKENS,) if quick else TOKENS)}}


def draw(results: dict) -> plt.Figure:
    """Densities and tails for every number of tokens, KL of both."""
    figure, axes = plt.subplots(1, 5, figsize=(15.5, 3.3))
    for (s, found), pair, style in zip(results["tokens"].items(), (axes[:2], axes[2:4]), SERIES[2:], strict=False):
        draw_densities(*pair, found)
        pair[0].set_title(f"{s} tokens: density")
        pair[1].set_title("its right tail")
        widths = [int(n) for n in found["widths"]]
        plot_kl(axes[4], widths, list(found["widths"].values()), style, f"{s} tokens")
    axes[4].set(xlabel="width $n$", ylabel="KL(width $n$ || law)", xticks=widths, title="distance from the law")
    axes[4].set_xticklabels(widths)
    axes[4].minorticks_off()
    axes[4].legend()
    return figure


if __name__ == "__main__":
    main("fig4", compute, draw)
