"""Figures of outputs against the law: each with a title, an alternative text, how to read it, and what its numbers mean."""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from hierattn.diagnostics.comparison.token import TAILS
from hierattn.diagnostics.diagnosis import Diagnosis
from hierattn.diagnostics.record import HEAD_DIM
from hierattn.reporting.svg import GAUSSIAN, INK, LAW, SEEN, axes, beneath, svg


class Panel(NamedTuple):
    """A figure of the page."""

    name: str
    title: str
    alt: str
    read: str
    means: str
    svg: str


def hierarchy(diagnosis: Diagnosis) -> Panel | None:
    """How much networks differ: mean squares of one token, one for each network."""
    y, found = diagnosis.outputs, diagnosis.examination
    if found is None or not diagnosis.marginals or y.shape[2] < 2:
        return None
    C, one, variance = y.shape[2], diagnosis.marginals[0], float(diagnosis.marginals[0].variance)
    token = diagnosis.tokens[0]
    u = (y[:, token] ** 2).mean(axis=1)
    x = np.linspace(0, max(u.max(), 2.2 * variance) * 1.05, 400)[1:]
    v, w = np.exp(np.asarray(one.nodes.x[0])), np.asarray(one.nodes.w[0])

    def density(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        half = C / 2
        logs = half * np.log(half / v) + (half - 1) * np.log(x[:, None]) - half * x[:, None] / v - gammaln(half)
        return np.exp(logs) @ w

    with axes() as (figure, ax):
        ax.hist(u, bins=min(40, max(8, len(u) // 6)), density=True, color=SEEN, alpha=0.45, label=f"{len(u)} networks")
        ax.plot(x, density(v, w), color=LAW, label="the law")
        ax.plot(x, density(np.array([variance]), np.ones(1)), color=GAUSSIAN, ls=(0, (4, 2)), label="Gaussian")
        ax.set(xlabel=f"mean square of token {token} over a network's coordinates", ylabel="density", ylim=(0, None))
        beneath(figure)
        drawn = svg(figure, "hierarchy")
    seen, law, error = float(found.seen.spread), float(found.at.mean.spread), float(found.drawn.spread.std())
    off = (seen - law) / error if error > 0 else 0.0
    words = (
        "as the law says" if abs(off) < 3 else f"{abs(off):.0f} standard errors {'more' if off > 0 else 'less'} than it says"
    )
    means = f"Networks differ by {seen:.3g} (variance over squared mean), where the law says {law:.3g} +- {error:.2g}: {words}."
    alt = f"Histogram of the mean squares of {len(u)} networks with the law's density and the narrower Gaussian one."
    read = "Shared scores make some networks large and others small: the wider the histogram, the more they differ."
    return Panel("hierarchy", "Do networks differ?", alt, read, means, drawn)


def quantiles(diagnosis: Diagnosis) -> Panel | None:
    """Quantiles of |y| against the law's."""
    found = diagnosis.tails
    if found is None:
        return None
    with axes(height=3.4) as (figure, ax):
        ax.plot(found.law, found.law, color=LAW, label="the law")
        ax.plot(found.law, found.gaussian, color=GAUSSIAN, ls=(0, (4, 2)), label="Gaussian of equal variance")
        ax.fill_between(found.law, found.low, found.high, color=SEEN, alpha=0.25, lw=0)
        ax.plot(found.law, found.observed, "o", color=SEEN, ms=3.5, label="outputs, with 90 % intervals")
        ax.plot(found.law, found.given_network, "x", color=INK, ms=4, mew=0.9, label="outputs over their network's size")
        ax.set(xlabel="quantile of |y| under the law (standard deviations)", ylabel="quantile observed")
        beneath(figure)
        drawn = svg(figure, "quantiles")
    inside = float(np.mean((found.law >= found.low) & (found.law <= found.high)))
    means = f"{inside:.0%} of the law's quantiles lie inside the observed 90 % intervals" + (
        ": the tails are the law's." if inside >= 0.7 else ": the tails are not the law's."
    )
    alt = "Observed quantiles of absolute outputs against the law's, with the Gaussian's for comparison."
    read = (
        f"{_shown(diagnosis)} Points on the solid line follow the law. Crosses are outputs divided by the size of their "
        "network: near the dashed line they are Gaussian inside a network, as they should be."
    )
    return Panel("quantiles", "Are the tails the law's?", alt, read, means, drawn)


def exceedances(diagnosis: Diagnosis) -> Panel | None:
    """How often far quantiles are exceeded."""
    found = diagnosis.tails
    if found is None:
        return None
    rows = found.exceedances
    x = np.arange(len(rows))
    seen, low, high = (np.array([row[name] for row in rows]) for name in ("observed", "low", "high"))
    with axes(height=2.8) as (figure, ax):
        ax.axhline(1, color=LAW, label="the law")
        ax.plot(x, [row["gaussian"] for row in rows], "s", color=GAUSSIAN, label="Gaussian of equal variance")
        ax.errorbar(x, seen, [seen - low, high - seen], fmt="o", color=SEEN, capsize=3, label="outputs, with 90 % intervals")
        ax.set_xticks(x, [f"{row['percent']:g} %" for row in rows])
        ax.set(xlabel="quantile of |y| under the law", ylabel="how often exceeded / law", ylim=(0, max(2.0, 1.1 * high.max())))
        ax.set_xlim(-0.5, len(rows) - 0.5)
        beneath(figure)
        drawn = svg(figure, "exceedances")
    row = rows[list(TAILS).index("999")]
    few = " (fewer than 10 outputs are expected there)" if row["expected"] < 10 else ""
    means = (
        f"The size that outputs of the law exceed once in 1,000 times was exceeded {row['observed']:.2f} times as often "
        f"({row['low']:.2f} to {row['high']:.2f}){few}; outputs of a Gaussian would {row['gaussian']:.2f} times as often."
    )
    if row["bound"] is not None:
        means += f" However its scores fall, no network of the law exceeds it more than {row['bound']:.1f} times as often."
    alt = "Exceedance ratios at 99, 99.9 and 99.99 per cent with intervals, against one for the law and the Gaussian's."
    read = f"{_shown(diagnosis)} One is the law. Intervals come from drawing whole networks again: coordinates share scores."
    return Panel("exceedances", "How often are outputs very large?", alt, read, means, drawn)


def kurtosis(diagnosis: Diagnosis) -> Panel | None:
    """Excess kurtosis of the tokens."""
    record = diagnosis.record
    if "excess_kurtosis_law" not in record:
        return None
    tokens = sorted(diagnosis.tokens)
    n, first, place = len(tokens), diagnosis.tokens[0], tokens.index(diagnosis.tokens[0])
    seen, low, high = (np.array(record[f"excess_kurtosis_{name}"])[tokens] for name in ("observed", "low", "high"))
    law = np.array([record["excess_kurtosis_law"][diagnosis.tokens.index(token)] for token in tokens], float)
    narrow, x = record.get(f"excess_kurtosis_head_dim_{HEAD_DIM}"), np.arange(n)
    with axes(height=2.8) as (figure, ax):
        ax.axhline(0, color=GAUSSIAN, ls=(0, (4, 2)), label="infinitely many heads (Gaussian)")
        ax.plot(x, law, "_", color=LAW, ms=26, mew=2.5, label="the law")
        if narrow is not None:
            ax.plot(place, narrow, "_", color=INK, ms=18, mew=1.2, label=f"the law at head_dim {HEAD_DIM} (token {first})")
        ax.errorbar(x, seen, [seen - low, high - seen], fmt="o", color=SEEN, capsize=3, label="outputs, with 90 % intervals")
        ax.set_xticks(x, [str(token) for token in tokens])
        ax.set(xlabel="token", ylabel="excess kurtosis", xlim=(-0.5, n - 0.5))
        beneath(figure)
        drawn = svg(figure, "kurtosis")
    means = (
        f"Token {first} has an excess kurtosis of {seen[place]:.3g} ({low[place]:.3g} to {high[place]:.3g}); "
        f"the law says {law[place]:.3g}, a Gaussian has 0."
    )
    alt = f"Excess kurtosis of {n} tokens with intervals over networks, against the law's and zero."
    read = f"{_shown(diagnosis)} Excess kurtosis says how heavy tails are; it falls as 1 over the number of heads."
    return Panel("kurtosis", "How heavy are the tails?", alt, read, means, drawn)


def _shown(diagnosis: Diagnosis) -> str:
    """Which tokens a figure shows."""
    tokens, s = sorted(diagnosis.tokens), diagnosis.outputs.shape[1]
    if len(tokens) == s:
        return f"All {s} tokens." if s > 1 else "The one token."
    return f"{len(tokens)} of {s} tokens, of those that see most keys ({', '.join(map(str, tokens))})."
