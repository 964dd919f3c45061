"""Tokens covary in another way than the kernel leads to, whatever the score_scale."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Test


def number(held: Held) -> np.ndarray | None:
    """Squared length of what no score_scale explains; nothing is left where there is but one direction."""
    return np.sum(held.across**2, axis=-1) if held.across.shape[-1] > 1 else None


DEPARTURE = Departure(
    code="kernel",
    looked_at="the rest of the covariance between tokens",
    points_to="the kernel of the inputs, the mask, or position embeddings",
    remedy="is the kernel that of the layer's own inputs (after the norm before it, positions included), with its tokens in "
    "the order of the outputs? Do mask and position embeddings agree with the model?",
    test=Test("kernel", number, two_sided=False),
)


def explain(tried: bool, numbers: dict[str, float]) -> dict[str, Any]:
    """No scales mend it; or they could not be tried."""
    if tried:
        return DEPARTURE.reason("no scales make the covariance between tokens what this kernel leads to", **numbers)
    return DEPARTURE.reason("the covariance between tokens is not what the kernel and these scales lead to", **numbers)


def or_far_scales(numbers: dict[str, float]) -> dict[str, Any]:
    """Scales do mend it, but only far ones, or several."""
    return DEPARTURE.reason("the kernel is not that of these outputs, or scales are far from the given ones", **numbers)
