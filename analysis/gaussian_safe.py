"""Where is the Gaussian of infinitely many heads safe? Independent tokens (clip inputs), infinite width.

Networks needed to tell the law from it with 95 % power at the 5 % level, if one output of each is seen, and if 64 are; and by
how much its 99.9 % quantile is too small.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from plotting import main

from hierattn import Architecture, Law, kernels
from hierattn.diagnostics.comparison import marginal_against_gaussian, networks_needed

HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
TOKENS = (2, 3, 4, 8, 16, 32)
ACCURACY = 1e-5  # of a density, relative to its peak


def compute(quick: bool) -> dict:
    """Both maps: heads against score scale at 4 tokens, heads against tokens at score scale 1."""
    heads = HEADS[::4] if quick else HEADS
    cells = [("scale", q, 4, q) for q in (SCALES[3::4] if quick else SCALES)]
    cells += [("tokens", s, s, 1.0) for s in (TOKENS[1:3] if quick else TOKENS)]
    found: dict = {"scale": {}, "tokens": {}}
    for name, key, s, q in cells:
        records = []
        for H in heads:
            law = Law(Architecture(heads=H, sigma_q=q), kernels.equicorrelated(s))
            marginal, variance = law.marginal(accuracy=ACCURACY), law.moments().variance
            record = marginal_against_gaussian(marginal, variance)
            records.append(record | {"networks_needed_64": networks_needed(marginal, variance, 64)})
        found[name][str(key)] = dict(zip(map(str, heads), records, strict=True))
    return found


def draw_map(axes: plt.Axes, table: dict, name: str, title: str) -> None:
    """Networks needed as shades, with numbers in the cells."""
    rows, columns = list(table), list(next(iter(table.values())))
    values = np.array([[table[row][column][name] or np.nan for column in columns] for row in rows], float)
    image = axes.imshow(values, norm=LogNorm(10, 1e7), cmap="Greys_r", aspect="auto", origin="lower")
    for (i, j), value in np.ndenumerate(values):
        text = (
            "never"
            if np.isnan(value)
            else f"{value:.0f}"
            if value < 1e3
            else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
        )
        dark = not np.isnan(value) and image.norm(value) < 0.55
        axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel="heads", title=title)
    axes.spines[:].set_visible(False)


def draw(results: dict) -> plt.Figure:
    """Two maps of networks needed, and the quantile's error."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), width_ratios=[1.2, 1.2, 1.2, 1])
    draw_map(axes[0], results["scale"], "networks_needed", "4 tokens: networks needed,\none output each")
    draw_map(axes[1], results["scale"], "networks_needed_64", "4 tokens: networks needed,\n64 outputs each")
    draw_map(axes[2], results["tokens"], "networks_needed", "score scale 1: networks needed,\none output each")
    axes[0].set_ylabel("score scale")
    axes[1].set_ylabel("score scale")
    axes[2].set_ylabel("tokens")
    shades = np.linspace(0.75, 0, len(results["scale"]))
    for (q, row), shade, marker in zip(results["scale"].items(), shades, "ovs^Dx*P", strict=False):
        heads = [int(H) for H in row]
        errors = [-100 * record["quantile_error_999"] for record in row.values()]
        axes[3].plot(heads, errors, color=str(shade), marker=marker, lw=1, ms=4, label=q)
    axes[3].set(
        xscale="log", yscale="log", xlabel="heads", title="99.9 % quantile of $|y|$:\nper cent too small", ylim=(1e-4, 30)
    )
    axes[3].set_xticks(heads, heads)
    axes[3].minorticks_off()
    axes[3].legend(title="score scale", fontsize=6.5, title_fontsize=7, ncols=2, loc="lower left")
    return figure


if __name__ == "__main__":
    main("gaussian_safe", compute, draw)
