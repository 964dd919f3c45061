"""Networks are more alike than Gaussian ones: their sizes were made equal."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Test


def number(held: Held) -> np.ndarray:
    """How alike the networks' mean squares are, among Gaussian networks; one coordinate shows nothing."""
    return -held.seen.evenness if held.view.coordinates > 1 else np.zeros_like(held.seen.evenness)


DEPARTURE = Departure(
    code="normalised",
    looked_at="whether networks are too much alike",
    points_to="a normalisation of the outputs (LayerNorm, RMSNorm, standardised data)",
    remedy="take the outputs before they are normalised: those of the attention layer itself",
    test=Test("normalised", number, two_sided=False, among="gaussian"),
)


def explain(ratio: float, p_value: float) -> dict[str, Any]:
    """Sizes of networks vary less than chance alone would make them."""
    message = f"networks differ less than Gaussian ones would ({ratio:.2g} of their variance): outputs were normalised"
    return DEPARTURE.reason(message, variance_ratio=ratio, p_value=p_value)
