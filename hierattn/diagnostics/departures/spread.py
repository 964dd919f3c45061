"""Networks differ more, or less, than the law says."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Test


def number(held: Held) -> np.ndarray:
    """Variance of networks' sizes over its squared mean, more than the law's."""
    return held.off.spread - held.moved * held.slope.spread


DEPARTURE = Departure(
    code="spread",
    looked_at="how much networks differ from each other",
    points_to="the number of heads, head_dim, or heads that share keys and values",
    remedy="check heads, head_dim and key_value_heads",
    test=Test("spread", number),
)


def explain(more: bool, seen: float, law: float, numbers: dict[str, float]) -> dict[str, Any]:
    """Only this is wrong."""
    how = "more" if more else "less"
    message = f"networks differ {how} than the law says: the number of heads, or head_dim, may be wrong"
    return DEPARTURE.reason(message, spread=seen, spread_law=law, **numbers)
