"""Things to know about a result, each with a code, a sentence and the numbers behind it."""

from typing import Any

import numpy as np


def reason(code: str, message: str, **numbers: float) -> dict[str, Any]:
    """One thing to know about a result; a number that is none is None."""
    return {"code": code, "message": message, "numbers": {name: finite(x) for name, x in numbers.items()}}


def finite(x: float) -> float | None:
    """The number, or None for NaN and infinities, which JSON does not have."""
    return x if np.isfinite(x) else None
