"""What a stack does to its tokens, as figures: on a page that needs nothing else, or all in one picture."""

from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hierattn.reporting.figures import Panel
from hierattn.reporting.page import template
from hierattn.reporting.svg import GAUSSIAN, INK, LAW, OTHER, SEEN, STYLE, axes, beneath, svg
from hierattn.stack.recursions.baselines import FIELD, HEADS, LINEAR, MANY, WIDTH
from hierattn.stack.stack import Stack

Told = dict[str, Any]
LINES: dict[str, Any] = {
    WIDTH: {"color": LAW, "ls": "-", "lw": 1.4},
    HEADS: {"color": GAUSSIAN, "ls": (0, (4, 2)), "lw": 1.6},
    LINEAR: {"color": OTHER, "ls": (0, (1, 1.5)), "lw": 1.8},
    FIELD: {"color": INK, "ls": (0, (1, 3)), "lw": 1.4},
    MANY: {"color": INK, "ls": (0, (5, 3, 1, 3)), "lw": 1.0},
}
COLUMNS = ("norm", "cosine", "cosine_spread", "apart", "effective_rank", "entropy", "largest", "kurtosis")
COLLAPSED, APART = 0.95, 0.5  # mean cosines beyond which tokens are said to have collapsed, and below which to be apart
FROZEN, EVEN = 0.9, 0.95  # largest weight beyond which attention is said to look at one key; share of the largest entropy


class Depth(NamedTuple):
    """A stack, what is told of its networks, and other theories of it (name -> numbers for each layer)."""

    stack: Stack
    told: Told
    others: dict[str, Told]
    networks: int
    token: int
    origin: dict[str, Any]

    @property
    def layers(self) -> np.ndarray:
        """0 the embedding, then after every block."""
        return np.arange(len(self.stack.blocks) + 1)

    def numbers(self, name: str, told: Told | None = None) -> np.ndarray:
        """One for each of these layers, NaN where there is none; the final norm is left out."""
        values = (self.told if told is None else told)[name][: len(self.layers)]
        return np.array([np.nan if x is None else x for x in values])

    @property
    def keys(self) -> np.ndarray:
        """How many keys the queries see."""
        attention = next(block.attention for block in self.stack.blocks if block.attention is not None)
        return np.asarray(attention.allowed(self.stack.tokens, self.stack.tokens)).sum(axis=1)


def cosine(ax: Axes, found: Depth) -> None:
    """Mean over pairs of tokens, with other theories of it."""
    _band(ax, found, "cosine")
    for name, told in found.others.items():
        ax.plot(found.layers, found.numbers("cosine", told), **LINES[name], label=name)
    low = float(np.nanmin(found.numbers("cosine_low")))
    ax.set(ylabel="mean cosine of two tokens", ylim=(min(0.0, low - 0.02), None))


def apart(ax: Axes, found: Depth) -> None:
    """1 - cosine on a logarithmic axis, and what is beyond rank one."""
    x = found.numbers("apart")
    low = np.maximum(found.numbers("apart_low"), 1e-16)
    ax.fill_between(found.layers, low, found.numbers("apart_high"), color=SEEN, alpha=0.25, lw=0)
    ax.semilogy(found.layers, x, color=SEEN, label="1 - cosine, mean over pairs")
    ax.semilogy(found.layers, found.numbers("beyond_rank_one"), color=LAW, ls=(0, (4, 2)), label="share beyond rank one")
    ax.set(ylabel="distance of tokens", ylim=(None, 2.0))


def norm(ax: Axes, found: Depth) -> None:
    """Mean square of the token."""
    _band(ax, found, "norm")
    for name, told in found.others.items():
        if name in (WIDTH, HEADS):
            ax.plot(found.layers, found.numbers("norm", told), **LINES[name], label=name)
    x = found.numbers("norm")
    wide = x.max() > 30 * x.min()
    ax.set(ylabel="mean square of the token", yscale="log" if wide else "linear", **({} if wide else {"ylim": (0, None)}))


def rank(ax: Axes, found: Depth) -> None:
    """(tr G)^2 / tr G^2."""
    x, spread = found.numbers("effective_rank"), found.numbers("effective_rank_spread")
    ax.fill_between(found.layers, x - 1.64 * spread, x + 1.64 * spread, color=SEEN, alpha=0.25, lw=0)
    ax.plot(found.layers, x, color=SEEN, label=f"{found.networks} networks")
    ax.axhline(1, color=GAUSSIAN, ls=(0, (4, 2)), label="all tokens alike")
    ax.set(ylabel="effective rank", ylim=(0, found.stack.tokens + 0.3))


def weights(ax: Axes, found: Depth) -> None:
    """Entropy as a share of the largest there could be, and the largest weight."""
    most = np.log(found.keys).mean()
    if most > 0:
        ax.plot(
            found.layers, found.numbers("entropy") / most, "o-", ms=3.5, color=SEEN, label="entropy / that of equal weights"
        )
    ax.plot(found.layers, found.numbers("largest"), "s-", ms=3.5, color=LAW, label="largest weight of a row")
    ax.set(ylabel="weights of attention", ylim=(0, 1.03))


def tails(ax: Axes, found: Depth) -> None:
    """Excess kurtosis of coordinates over networks."""
    ax.axhline(0, color=GAUSSIAN, ls=(0, (4, 2)), label="Gaussian")
    shown = {"kurtosis": ("stream", SEEN, 0.0), "kurtosis_attention": ("attention's output", LAW, 0.12)}
    shown |= {"kurtosis_mlp": ("MLP's output", OTHER, -0.12)}
    for name, (label, color, shift) in shown.items():
        if name in found.told and np.isfinite(found.numbers(name)).any():
            x, errors = found.numbers(name), 2 * found.numbers(f"{name}_error")
            ax.errorbar(found.layers + shift, x, errors, fmt="o-", ms=3.5, lw=1.2, capsize=2, color=color, label=label)
    ax.set(ylabel="excess kurtosis")


def _band(ax: Axes, found: Depth, name: str) -> None:
    """Mean and 90 % of networks."""
    low, high = (found.numbers(f"{name}_{end}") for end in ("low", "high"))
    ax.fill_between(found.layers, low, high, color=SEEN, alpha=0.25, lw=0, label="90 % of networks")
    ax.plot(found.layers, found.numbers(name), color=SEEN, label=f"mean of {found.networks} networks")


class Kind(NamedTuple):
    """A figure: how it is drawn, and how it is to be read."""

    draw: Callable[[Axes, Depth], None]
    title: str
    read: str
    means: Callable[[Depth], str]


def _of_cosine(found: Depth) -> str:
    first, last, spread = (float(found.numbers(name)[k]) for name, k in (("cosine", 0), ("cosine", -1), ("cosine_spread", -1)))
    told = f"Two tokens have a mean cosine of {first:.2f} in the embedding and of {last:.2f} after the last block"
    told += f"; networks differ by {spread:.2g} (standard deviation), which recursions without randomness do not show."
    if HEADS in found.others:
        gap = float(found.numbers("cosine", found.others[HEADS])[-1]) - last
        told += f" Infinitely many heads would have {abs(gap):.2g} {'more' if gap > 0 else 'less'}."
    return told


def _of_apart(found: Depth) -> str:
    x = found.numbers("apart")
    return f"1 - cosine goes from {x[0]:.3g} to {x[-1]:.3g} in {len(found.stack.blocks)} blocks."


def _of_norm(found: Depth) -> str:
    x = found.numbers("norm")
    return f"Token {found.token % found.stack.tokens} has a mean square of {x[0]:.3g} in the embedding, {x[-1]:.3g} at the end."


def _of_rank(found: Depth) -> str:
    x = found.numbers("effective_rank")
    return f"{found.stack.tokens} tokens count as {x[0]:.3g} in the embedding and as {x[-1]:.3g} after the last block."


def _of_weights(found: Depth) -> str:
    largest, keys = found.numbers("largest")[1:], found.keys
    equal = float((1 / keys).mean())
    return f"The largest weight of a row is {np.nanmean(largest):.2g} on average; equal weights would have {equal:.2g}."


def _of_tails(found: Depth) -> str:
    if "kurtosis" not in found.told:
        return "Inputs are given, so that coordinates of the stream have no law of their own; those of branches have."
    x, error = found.numbers("kurtosis"), found.numbers("kurtosis_error")
    return f"After the last block a coordinate of the stream has an excess kurtosis of {x[-1]:.2g} +- {error[-1]:.1g}."


KINDS = {
    "cosine": Kind(
        cosine,
        "Do tokens keep apart?",
        "Cosines of one: all tokens have become the same. The band holds nine networks of ten.",
        _of_cosine,
    ),
    "apart": Kind(
        apart,
        "How fast do they collapse?",
        "A straight line down is rank collapse at a constant rate.",
        _of_apart,
    ),
    "norm": Kind(
        norm,
        "How large does the stream grow?",
        "Every branch adds to it, unless a norm follows.",
        _of_norm,
    ),
    "rank": Kind(
        rank,
        "How many tokens are left?",
        "The effective rank is one where all tokens are alike. The band is 1.64 standard deviations of networks.",
        _of_rank,
    ),
    "weights": Kind(
        weights,
        "Does attention choose?",
        "Means over queries, heads and networks. Entropy near its largest: all keys count alike. A weight near one: one key.",
        _of_weights,
    ),
    "tails": Kind(
        tails,
        "How heavy are the tails?",
        "Of one coordinate over networks; bars are two standard errors. Above zero, some networks are larger than others.",
        _of_tails,
    ),
}


def kinds(found: Depth) -> dict[str, Kind]:
    """Those that there is something to show of."""
    without = set() if any(block.attention is not None for block in found.stack.blocks) else {"weights"}
    without |= {"cosine", "apart", "rank"} if found.stack.tokens == 1 else set()
    return {name: kind for name, kind in KINDS.items() if name not in without}


def verdict(found: Depth) -> str:
    """One sentence."""
    if found.stack.tokens == 1:
        return "There is one token: nothing to tell apart."
    last = float(found.numbers("cosine")[-1])
    words = (
        "tokens have collapsed"
        if last > COLLAPSED
        else "tokens are still apart"
        if last < APART
        else "tokens are drawn together"
    )
    told = f"After {len(found.stack.blocks)} blocks {words} (mean cosine {last:.2f})"
    if "weights" not in kinds(found):
        return f"{told}; there is no attention."
    largest, most = float(np.nanmean(found.numbers("largest"))), float(np.log(found.keys).mean())
    entropy = float(np.nanmean(found.numbers("entropy"))) / most if most else 1.0
    if largest > FROZEN:
        return f"{told}; attention looks at one key (weight {largest:.2g})."
    return f"{told}; attention {'looks at all keys alike' if entropy > EVEN else 'chooses among keys'}."


def panels(found: Depth) -> list[Panel]:
    """All figures for the page."""
    drawn = []
    for name, kind in kinds(found).items():
        with axes(height=3.3) as (figure, ax):
            kind.draw(ax, found)
            _layers(ax, found)
            beneath(figure)
            text = svg(figure, name)
        alt = f"{kind.title} A line over {len(found.stack.blocks)} blocks, with a band or bars for networks."
        drawn.append(Panel(name, kind.title, alt, kind.read, kind.means(found), text))
    return drawn


def picture(found: Depth) -> Figure:
    """All figures in one, on white."""
    with mpl.rc_context(STYLE | {"figure.facecolor": "white", "savefig.facecolor": "white"}):
        chosen = kinds(found)
        rows = -(-len(chosen) // 3)
        figure = Figure((13.5, 3.9 * rows))
        places = figure.subplots(rows, 3, squeeze=False).ravel()
        for ax, kind in zip(places, chosen.values(), strict=False):
            kind.draw(ax, found)
            _layers(ax, found)
            ax.set_title(kind.title)
            ax.legend(fontsize=8)
        for ax in places[len(chosen) :]:
            ax.set_axis_off()
        figure.suptitle(f"{found.stack!r}, {found.networks} networks")
    return figure


def _layers(ax: Axes, found: Depth) -> None:
    ax.set(xlabel="block (0: embedding)", xlim=(-0.3, len(found.stack.blocks) + 0.3))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def page(found: Depth) -> str:
    """The page as text."""
    names = ["embedding", *map(str, found.layers[1:]), *["final norm"] * (found.stack.final_norm is not None)]
    columns = [name for name in COLUMNS if name in found.told]
    rows = [(name, [found.told[column][k] for column in columns]) for k, name in enumerate(names)]
    return template("depth.html").render(
        found=found, verdict=verdict(found), panels=panels(found), columns=columns, rows=rows, raw=Markup, origin=found.origin
    )
