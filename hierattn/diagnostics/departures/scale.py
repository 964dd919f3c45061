"""Outputs are larger or smaller than value_scale says."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Test


def number(held: Held) -> np.ndarray | None:
    """How far the log of the mean square is off; twice that of value_scale."""
    return None if "value_scale" in held.free else held.off.size - held.moved * held.slope.size


DEPARTURE = Departure(
    code="scale",
    looked_at="size of the outputs",
    points_to="value_scale, the size of the value and output weights",
    remedy="check value_scale (sigma_V sigma_O): are the outputs those of the layer alone, before a residual connection, "
    "dropout or a further scaling? Leave value_scale out to have it estimated",
    test=Test("scale", number),
)


def explain(given: Any, factor: float, prefix: str, numbers: dict[str, float]) -> dict[str, Any]:
    """It is a factor times the given one; if heads differ, all of theirs are."""
    if np.ndim(given):
        return DEPARTURE.reason(
            f"{prefix}value_scale of all heads is {factor:.3g} times the given ones", factor=factor, **numbers
        )
    message = f"{prefix}value_scale is {given * factor:.3g} rather than {given:.3g}"
    return DEPARTURE.reason(message, given=given, estimate=float(given * factor), **numbers)
