"""The time that a fit may take, and times in words."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hierattn.base.errors import unusable
from hierattn.inference.course.compiling import compiling

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
PART = r"(\d+(?:\.\d+)?)([smh])"
NONE = "none"


@dataclass(frozen=True)
class Budget:
    """Seconds that a fit may take, infinitely many for no limit; the clock that counts them, and those of compilation."""

    seconds: float = inf
    clock: Callable[[], float] = time.monotonic
    compiled: Callable[[], float] = compiling

    @property
    def words(self) -> str:
        """As a user reads it."""
        return "no limit" if self.seconds == inf else in_words(self.seconds)


def budget_of(given: "Budget | float | str | None", argument: str = "budget") -> Budget:
    """A budget of seconds, of words like "90s", "5m" or "1h30m", or without a limit: None or "none"."""
    if isinstance(given, Budget):
        return given
    if given is None or given == NONE:
        return Budget()
    if isinstance(given, str) and re.fullmatch(f"(?:{PART})+", given):
        given = sum(float(number) * UNITS[unit] for number, unit in re.findall(PART, given))
    if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 < given < inf:
        return Budget(float(given))
    raise unusable(argument, "a time such as 90s, 5m or 1h30m, or none", repr(given))


def in_words(seconds: float) -> str:
    """A time with about two digits."""
    for size, unit in ((1.0, "s"), (60.0, "min")):
        if seconds < 99.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds / 3600:.3g} h"
