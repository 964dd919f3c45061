"""Figures of what could have been: outputs among those of new networks, and departures among those that would be noticed."""

import numpy as np

from hierattn.diagnostics.departures.registry import RIVALS
from hierattn.diagnostics.diagnosis import Diagnosis
from hierattn.diagnostics.power import POWER, needed
from hierattn.reporting.figures import Panel
from hierattn.reporting.svg import GAUSSIAN, INK, LAW, OTHER, SEEN, axes, beneath, plain, svg

LOOKS = ((GAUSSIAN, "s"), (LAW, "^"), (SEEN, "o"), (OTHER, "D"))  # colour and marker of curves, in turn


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
        ax.set(xlabel="off the median, in intervals", xlim=(-2.7, 2.7))
        drawn = svg(figure, "predictive")
    odd = [name for name, check in checks.items() if check.p_value < 0.01]
    means = f"Out of the ordinary: {', '.join(odd)}." if odd else "Nothing is out of the ordinary: all p-values are above 0.01."
    from_fit = "the fit's posterior predictive draws" if diagnosis.subject.tree is not None else "the law"
    alt = "Observed statistics as points on the distributions of the same statistics in predicted data sets."
    read = f"Shapes are new networks from {from_fit}, as many as were observed; dots are the outputs. "
    read += "Zero is the median of new networks, one the width of their 90 % interval."
    return Panel("predictive", "Would new networks look like this?", alt, read, means, drawn)


def power(diagnosis: Diagnosis) -> Panel | None:
    """Networks that departures need to be seen."""
    curve = diagnosis.power_curve
    if len(curve) < 2:
        return None
    M, x = len(diagnosis.outputs), list(curve)
    with axes(height=3.4) as (figure, ax):
        for i, name in enumerate(next(iter(curve.values()))):
            colour, marker = LOOKS[i % len(LOOKS)]
            seen, label = [row[name] for row in curve.values()], plain(RIVALS[name].words)
            ax.plot(x, seen, marker=marker, ms=4, color=colour, label=label)
        ax.axvline(M, color=INK, lw=1, ls=":", label=f"{M} networks observed")
        ax.axhline(POWER, color=INK, lw=0.6)
        ax.set(xscale="log", xlabel="networks", ylabel="probability to notice", ylim=(-0.03, 1.05))
        ax.set_xticks(x, [str(number) for number in x])
        ax.minorticks_off()
        beneath(figure, columns=1)
        drawn = svg(figure, "power")
    enough = needed(curve, "gaussian")
    means = (
        f"About {enough} networks of {diagnosis.outputs.shape[2]} coordinates tell the law from a Gaussian; {M} were observed."
        if enough is not None
        else f"Even {x[-1]} networks would not tell the law from a Gaussian; {M} were observed."
    )
    alt = "Probability that rivals of the law would be noticed, against the number of networks."
    read = "CONSISTENT means something only where all curves are high at the number of networks observed (dotted)."
    return Panel("power", "How many networks are enough?", alt, read, means, drawn)
