"""What a departure from the law is, to whoever looks for it: a code, words, a test, a rival that has it, and a remedy.

A new departure is a file here with its `DEPARTURE`, and its name in registry.py. Where a refusal has several possible
causes, explanation.py decides which of them is named.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.base.reasons import reason
from hierattn.diagnostics.statistics import Statistics, View


class Held(NamedTuple):
    """Statistics of one data set, or of many along a leading axis, held against those of the law: what a test is given.

    - seen, off: the statistics, and what they have more than the law leads one to expect
    - slope: derivative of the expected ones in log score_scale
    - moved: how far log score_scale was estimated off by shape; 0 where it was given
    - across: what of shape no score_scale explains, whitened
    - along: how far shape and spread are off in the direction of score_scale; None where it moves nothing
    - free: names of scales that were estimated
    """

    seen: Statistics
    off: Statistics
    slope: Statistics
    moved: np.ndarray
    across: Float[np.ndarray, "*any r"]
    along: np.ndarray | None
    free: frozenset[str]
    view: View


class Simulated(NamedTuple):
    """Networks of the law, which take kernels in turn, and E[Sigma] for each kernel: what a rival is made of."""

    y: Float[np.ndarray, "network s coordinate"]
    Sigma: Float[np.ndarray, "k s s"]
    view: View


@dataclass(frozen=True)
class Test:
    """A number for each data set, whose rank among simulated ones is a p-value.

    - name: of the p-value in the record: p_<name>
    - number: from what a data set shows; None where there is nothing to look at
    - two_sided: or only large numbers refuse the law
    - among: data sets of the law, or of a rival, by its name
    """

    name: str
    number: Callable[[Held], np.ndarray | None]
    two_sided: bool = True
    among: str = "law"


@dataclass(frozen=True)
class Rival:
    """Outputs that have the departure: could they have been told from the law?

    - name: of the power in the record: power_<name>
    - words: "... would have shown <words>"
    - outputs: networks of the rival, made of simulated ones of the law; None where there is no such rival
    - probability: instead: that it is noticed, given the scales estimated, the error of log score_scale, and a level
    """

    name: str
    words: str
    outputs: Callable[[Simulated, np.random.Generator], np.ndarray | None] | None = None
    probability: Callable[[frozenset[str], float, float], float | None] | None = None


@dataclass(frozen=True)
class Departure:
    """One way not to follow the law.

    - code: of the reason that names it
    - looked_at: in plain words
    - points_to: what is wrong if it is found
    - remedy: what to do next
    """

    code: str
    looked_at: str
    points_to: str
    remedy: str
    test: Test | None = None
    rival: Rival | None = None

    def reason(self, message: str, **numbers: float) -> dict[str, Any]:
        """That it was found: {code, message, numbers}."""
        return reason(self.code, message, **numbers)
