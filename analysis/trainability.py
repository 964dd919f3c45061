"""Where tokens collapse, where attention freezes on one key, and where a signal lives: a map in mean field.

512 tokens, 12 layers with an MLP, before each branch a norm, or after it. The dashed line is where the published limit of very
many tokens (Giorlandino and Goldt 2026) says that attention begins to choose.
"""

import matplotlib.pyplot as plt
import numpy as np
from plotting import main

from hierattn import MLP, Architecture, Block, Embedding, Norm, Stack
from hierattn.stack.recursions.trainability import COLLAPSED, FROZEN, trainability

TOKENS, LAYERS = 512, 12
SCALES, GAINS = np.geomspace(0.5, 12, 14), np.geomspace(0.1, 3, 10)


def stack_of(placement: str, tokens: int, layers: int) -> Stack:
    """ReLU, weights that keep the norm."""
    mlp = MLP(activation="relu", sigma_out=2**0.5)
    block = Block(attention=Architecture(heads=8), mlp=mlp, norm=Norm(), placement=placement)
    return Stack(width=None, embedding=Embedding.independent(tokens), blocks=[block] * layers)


def compute(quick: bool) -> dict:
    """Both maps."""
    tokens, layers, scales, gains = (16, 1, SCALES[::5], GAINS[::5]) if quick else (TOKENS, LAYERS, SCALES, GAINS)
    found = {}
    for placement in ("pre", "post"):
        each = trainability(stack_of(placement, tokens, layers), scales, gains)
        found[placement] = {name: values.tolist() for name, values in each._asdict().items()}
    return {"maps": found, "tokens": tokens, "layers": layers}


def draw(results: dict) -> plt.Figure:
    """Cosines in colour, freezing and the limit as lines."""
    figure, places = plt.subplots(1, 2, figsize=(9.5, 3.9))
    for axes, (placement, found) in zip(places, results["maps"].items(), strict=True):
        x, y, cosine = (np.array(found[name]) for name in ("score_scales", "gains", "cosine"))
        shown = axes.pcolormesh(x, y, cosine, vmin=0, vmax=1, cmap="viridis_r", shading="gouraud", rasterized=True)
        drawn = {
            "frozen: sum of squared weights 0.5": (found["weight"], FROZEN, "#d1495b", "-"),
            "published limit: attention chooses": (found["weight_of_limit"], 0.0, "#d1495b", "--"),
            f"tokens collapsed: cosine {COLLAPSED}": (cosine, COLLAPSED, "white", "-"),
        }
        for label, (values, level, color, style) in drawn.items():
            values = np.array(values)
            if values.min() < level < values.max():
                axes.contour(x, y, values, [level], colors=color, linestyles=style, linewidths=2)
            axes.plot([], [], color=color, ls=style, lw=2, label=label)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="score scale",
            title=f"norm {'before' if placement == 'pre' else 'after'} a branch",
        )
    places[0].set_ylabel("gain of branches")
    places[0].legend(loc="upper left", facecolor="#b0b8c0", frameon=True, framealpha=0.8, fontsize=7.5)
    figure.colorbar(shown, ax=places, label=f"cosine of two of {results['tokens']} tokens after {results['layers']} layers")
    return figure


if __name__ == "__main__":
    main("trainability", compute, draw)
