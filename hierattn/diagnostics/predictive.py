"""Predictive checks: statistics of the outputs among those of as many new networks, with fresh scores.

New networks come from a fit's posterior predictive draws, or else from the law itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hierattn.diagnostics import reference
from hierattn.diagnostics.comparison.token import square_correlation
from hierattn.diagnostics.subject import Subject

DATA_SETS = 200  # predicted where there is no fit
NUMBERS = 2**24  # of predicted outputs, at most


class Check(NamedTuple):
    """A statistic of the outputs, of predicted ones, and how often those are as far out (both sides)."""

    observed: float
    predicted: np.ndarray
    p_value: float


def excess_kurtosis(y: np.ndarray) -> float:
    """Of all outputs, every token scaled to unit variance."""
    return float(np.mean((y**4).mean(axis=(0, 2)) / (y**2).mean(axis=(0, 2)) ** 2) - 3)


def quantile(p: float) -> Callable[[np.ndarray], float]:
    """A quantile of |y| over their root mean square."""
    return lambda y: float(np.quantile(np.abs(y), p) / np.sqrt(np.mean(y**2)))


def largest(y: np.ndarray) -> float:
    """The largest |y| over their root mean square."""
    return float(np.abs(y).max() / np.sqrt(np.mean(y**2)))


def token_correlation(y: np.ndarray) -> float:
    """The mean correlation of two tokens."""
    S = np.einsum("mic,mjc->ij", y, y, optimize=True)
    scale = np.sqrt(np.diagonal(S))
    R = S / np.where(scale > 0, scale, 1)[:, None] / np.where(scale > 0, scale, 1)
    return float(R[np.triu_indices(len(R), 1)].mean())


def statistics_of(y: np.ndarray) -> dict[str, Callable[[np.ndarray], float]]:
    """Those that outputs of this shape have."""
    found = {"excess kurtosis": excess_kurtosis, "99.9 % quantile of |y|": quantile(0.999), "largest |y|": largest}
    if y.shape[2] > 1:
        found["correlation of squares of two coordinates"] = square_correlation
    if y.shape[1] > 1:
        found["correlation of two tokens"] = token_correlation
    return found


def checks(subject: Subject, y: np.ndarray, seed: int) -> dict[str, Check]:
    """All statistics of the outputs among those of predicted ones."""
    predicted = predictions(subject, y, seed)
    if predicted is None:
        return {}
    y = y[: predicted.shape[1], :, : predicted.shape[3]]
    found = {}
    for name, statistic in statistics_of(y).items():
        observed, drawn = statistic(y), np.array([statistic(each) for each in predicted])
        above, below = (1 + np.sum(drawn >= observed)) / (len(drawn) + 1), (1 + np.sum(drawn <= observed)) / (len(drawn) + 1)
        found[name] = Check(observed, drawn, float(min(1.0, 2 * min(above, below))))
    return found


def predictions(subject: Subject, y: np.ndarray, seed: int) -> np.ndarray | None:
    """Outputs (data set, network, token, coordinate) of new networks."""
    if subject.tree is not None:
        drawn = np.asarray(subject.tree["posterior_predictive"]["y"])
        return drawn.reshape(-1, *drawn.shape[2:])[:, : len(y)]
    if subject.law is None:
        return None
    number = int(np.clip(NUMBERS // y.size, 20, DATA_SETS))
    law = reference.of_first(subject.law, len(y))
    drawn = reference.draw(law, number * len(y), y.shape[2], seed + 3)
    return drawn.reshape(number, *y.shape)
