"""Scores are larger or smaller than score_scale says."""

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from hierattn.diagnostics.departures.protocol import Departure, Held, Rival, Test

OFF = 1.3  # factor by which a given score_scale is wrong, that must have been seen


def number(held: Held) -> np.ndarray | None:
    """How far shape and spread are off in the direction in which score_scale moves them."""
    return None if "score_scale" in held.free else held.along


def probability(free: frozenset[str], error: float, level: float) -> float | None:
    """That a given score_scale, wrong by a factor, is noticed."""
    if "score_scale" in free:
        return None
    return float(ndtr(np.log(OFF) / error - ndtri(1 - level / 2)))


DEPARTURE = Departure(
    code="score_scale",
    looked_at="what score_scale changes: covariance of tokens, differences of networks",
    points_to="score_scale, the size of the query and key weights",
    remedy="check score_scale (sigma_Q sigma_K) and what the model divides its scores by: 1 / sqrt(head_dim) is assumed. "
    "Leave score_scale out to have it estimated",
    test=Test("score_scale", number),
    rival=Rival("score_scale", f"a score_scale that is {100 * (OFF - 1):.0f} % off", probability=probability),
)


def explain(given: float, factor: float, prefix: str, numbers: dict[str, float]) -> dict[str, Any]:
    """It is a factor times the given one."""
    message = f"{prefix}score_scale is {given * factor:.3g} rather than {given:.3g}"
    return DEPARTURE.reason(message, given=given, estimate=float(given * factor), **numbers)
