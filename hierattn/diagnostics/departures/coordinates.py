"""The coordinates of one network are not Gaussian given its scores."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Test


def number(held: Held) -> np.ndarray | None:
    """Excess of fourth moments over those of Gaussian coordinates; one coordinate shows nothing."""
    return held.off.within if held.view.coordinates > 1 else None


DEPARTURE = Departure(
    code="coordinates",
    looked_at="whether coordinates of one network are Gaussian",
    points_to="something after the attention that is not linear, or weights that are not Gaussian",
    remedy="take the outputs of the output projection itself: no activation, dropout or rounding after it; and look at how its "
    "weights are drawn",
    test=Test("within", number),
)


def explain(within: float, p_value: float) -> dict[str, Any]:
    """Networks differ as they should, but their coordinates are not Gaussian."""
    message = "the coordinates of one network are not Gaussian given its scores"
    return DEPARTURE.reason(message, within=within, p_value=p_value)
