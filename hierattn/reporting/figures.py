"""The figures of a report: each with a title, words for those who do not see it, how to read it, and what its numbers mean."""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from hierattn.diagnostics.comparison import TAILS
from hierattn.diagnostics.diagnosis import Diagnosis
from hierattn.diagnostics.power import POWER, RIVALS, needed
from hierattn.reporting.svg import GAUSSIAN, INK, LAW, SEEN, axes, beneath, plain, svg


class Panel(NamedTuple):
    """A figure of the page."""

    name: str
    title: str
    alt: str
    read: str
    means: str
    svg: str


def hierarchy(diagnosis: Diagnosis) -> Panel | None:
    """How much networks differ: mean squares of one token, a network each."""
    y, found = diagnosis.outputs, diagnosis.examination
    if found is None or not diagnosis.marginals or y.shape[2] < 2:
        return None
    C, one, variance = y.shape[2], diagnosis.marginals[0], float(diagnosis.marginals[0].variance)
    u = (y[:, 0] ** 2).mean(axis=1)
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
        ax.set(xlabel="mean square of token 0 over a network's coordinates", ylabel="density", ylim=(0, None))
        beneath(figure)
        drawn = svg(figure, "hierarchy")
    seen, law, error = float(found.seen.spread), float(found.at.mean.spread), float(found.drawn.spread.std())
    off = (seen - law) / error if error > 0 else 0.0
    words = (
        "as the law says" if abs(off) < 3 else f"{abs(off):.0f} standard errors {'more' if off > 0 else 'less'} than it says"
    )
    means = f"Networks differ by {seen:.3g} (variance over squared mean); the law says {law:.3g} +- {error:.2g}: {words}."
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
        ax.plot(found.law, found.observed, "o", color=SEEN, ms=3.5, label="all outputs, 90 % over networks")
        ax.plot(found.law, found.given_network, "x", color=INK, ms=4, mew=0.9, label="each over its network's own size")
        ax.set(xlabel="quantile of |y| under the law (standard deviations)", ylabel="quantile observed")
        beneath(figure)
        drawn = svg(figure, "quantiles")
    inside = float(np.mean((found.law >= found.low) & (found.law <= found.high)))
    means = f"{inside:.0%} of the law's quantiles lie inside the observed 90 % intervals" + (
        ": the tails are the law's." if inside >= 0.7 else ": the tails are not the law's."
    )
    alt = "Observed quantiles of absolute outputs against the law's, with the Gaussian's for comparison."
    read = (
        "Points on the solid line follow the law. Crosses near the dashed one are Gaussian in their network, as they should be."
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
        ax.errorbar(x, seen, [seen - low, high - seen], fmt="o", color=SEEN, capsize=3, label="observed, 90 % over networks")
        ax.set_xticks(x, [f"{row['percent']:g} %" for row in rows])
        ax.set(
            xlabel="quantile of |y| under the law", ylabel="exceedances over the law's", ylim=(0, max(2.0, 1.1 * high.max()))
        )
        ax.set_xlim(-0.5, len(rows) - 0.5)
        beneath(figure)
        drawn = svg(figure, "exceedances")
    row = rows[list(TAILS).index("999")]
    few = " (fewer than 10 outputs are expected there)" if row["expected"] < 10 else ""
    means = (
        f"What the law exceeds once in 1,000 was exceeded {row['observed']:.2f} times as often "
        f"({row['low']:.2f} to {row['high']:.2f}){few}; a Gaussian would {row['gaussian']:.2f} times."
    )
    if row["bound"] is not None:
        means += f" No network of the law can exceed it more than {row['bound']:.1f} times as often."
    alt = "Exceedance ratios at 99, 99.9 and 99.99 per cent with intervals, against one for the law and the Gaussian's."
    read = "One is the law; intervals come from drawing whole networks with replacement, not coordinates."
    return Panel("exceedances", "How often are far quantiles exceeded?", alt, read, means, drawn)


def kurtosis(diagnosis: Diagnosis) -> Panel | None:
    """Excess kurtosis of the tokens."""
    record = diagnosis.record
    if "excess_kurtosis_law" not in record:
        return None
    n = len(record["excess_kurtosis_law"])
    seen, low, high = (np.array(record[f"excess_kurtosis_{name}"][:n]) for name in ("observed", "low", "high"))
    law, narrow, x = np.array(record["excess_kurtosis_law"]), record.get("excess_kurtosis_head_dim_64"), np.arange(n)
    with axes(height=2.8) as (figure, ax):
        ax.axhline(0, color=GAUSSIAN, ls=(0, (4, 2)), label="infinitely many heads (Gaussian)")
        ax.plot(x, law, "_", color=LAW, ms=26, mew=2.5, label="the law")
        if narrow is not None:
            ax.plot(0, narrow, "_", color=INK, ms=18, mew=1.2, label="the law at head_dim 64 (token 0)")
        ax.errorbar(x, seen, [seen - low, high - seen], fmt="o", color=SEEN, capsize=3, label="observed, 90 % over networks")
        ax.set_xticks(x, [str(i) for i in x])
        ax.set(xlabel="token", ylabel="excess kurtosis", xlim=(-0.5, n - 0.5))
        beneath(figure)
        drawn = svg(figure, "kurtosis")
    means = (
        f"Token 0 has an excess kurtosis of {seen[0]:.3g} ({low[0]:.3g} to {high[0]:.3g}); "
        f"the law says {law[0]:.3g}, a Gaussian 0."
    )
    alt = "Excess kurtosis of every token with its interval over networks, against the law's and zero."
    read = "Kurtosis falls as 1 over the number of heads; intervals over networks are wide, because networks are few."
    return Panel("kurtosis", "Kurtosis", alt, read, means, drawn)


def predictive(diagnosis: Diagnosis) -> Panel | None:
    """Statistics of the outputs among predicted ones."""
    checks = diagnosis.predictive
    if not checks:
        return None
    with axes(height=0.6 + 0.5 * len(checks)) as (figure, ax):
        for row, check in enumerate(reversed(checks.values())):
            centre, width = np.median(check.predicted), np.ptp(np.quantile(check.predicted, [0.05, 0.95])) or 1.0
            ax.violinplot((check.predicted - centre) / width, [row], orientation="horizontal", widths=0.8, showextrema=False)
            ax.plot(np.clip((check.observed - centre) / width, -2.5, 2.5), row, "o", color=SEEN)
        for body in ax.collections:
            body.set(facecolor=LAW, alpha=0.45)
        ax.set_yticks(range(len(checks)), [plain(name) for name in reversed(checks)])
        ax.set(xlabel="off, over the 90 % interval", xlim=(-2.7, 2.7))
        drawn = svg(figure, "predictive")
    odd = [name for name, check in checks.items() if check.p_value < 0.01]
    means = f"Out of the ordinary: {', '.join(odd)}." if odd else "Nothing is out of the ordinary: all p-values are above 0.01."
    from_fit = "the fit's posterior predictive draws" if diagnosis.subject.tree is not None else "the law"
    alt = "Observed statistics as points on the distributions of the same statistics in predicted data sets."
    read = f"Shapes are new networks from {from_fit}, as many as were observed, with fresh scores; dots are the outputs."
    return Panel("predictive", "Would new networks look like this?", alt, read, means, drawn)


def power(diagnosis: Diagnosis) -> Panel | None:
    """Networks that departures need to be seen."""
    curve = diagnosis.power_curve
    if len(curve) < 2:
        return None
    M, x = len(diagnosis.outputs), list(curve)
    words = RIVALS | {"score_scale": "score_scale off by 30 %"}
    look = {"gaussian": (GAUSSIAN, "s"), "own": (LAW, "^"), "score_scale": (SEEN, "o")}
    with axes(height=2.8) as (figure, ax):
        for name in next(iter(curve.values())):
            colour, marker = look[name]
            ax.plot(x, [row[name] for row in curve.values()], marker=marker, ms=4, color=colour, label=words[name])
        ax.axvline(M, color=INK, lw=1, ls=":", label=f"{M} networks observed")
        ax.axhline(POWER, color=INK, lw=0.6)
        ax.set(xscale="log", xlabel="networks", ylabel="probability to notice", ylim=(-0.03, 1.05))
        ax.set_xticks(x, [str(number) for number in x])
        ax.minorticks_off()
        beneath(figure)
        drawn = svg(figure, "power")
    enough = needed(curve, "gaussian")
    means = (
        f"About {enough} networks of {diagnosis.outputs.shape[2]} coordinates tell the law from the Gaussian; {M} were seen."
        if enough is not None
        else f"Even {x[-1]} networks would not tell the law from the Gaussian; {M} were observed."
    )
    alt = "Probability that rivals of the law would be noticed, against the number of networks."
    read = "A verdict of consistency means something only where the curves are high at the number of networks observed."
    return Panel("power", "Could these outputs have shown it?", alt, read, means, drawn)
