"""A diagnosis: outputs, or a fit, against the law; the verdict with its reasons and the numbers behind them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.diagnostics import record, words
from hierattn.diagnostics.judgement import Judgement, judge
from hierattn.diagnostics.subject import of_fit, of_observations, with_described
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Judgement):
    """What to believe of outputs: a judgement, its numbers (`record`) and its words. `print` it to read them."""

    @cached_property
    def record(self) -> dict[str, Any]:
        """Every number, as JSON has it."""
        return record.of_judgement(self)

    @property
    def next_steps(self) -> list[str]:
        """What to do next."""
        return words.next_steps(self)

    def __repr__(self) -> str:
        return words.short(self)

    def __str__(self) -> str:
        return words.text(self)


def diagnose(
    subject: "Observations | DataTree",
    layer: Architecture | None = None,
    *,
    score_scale: float | None = None,
    value_scale: float | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Do these outputs follow the law?

    - subject: `Observations`, or a fit (DataTree)
    - layer: heads, mask, head_dim, ... where the subject does not know them; its scales do not matter
    - score_scale: with value_scale: a law fixed in advance. Scales that are not given are those of the observations' layer, if
      it is described (each head its own, where heads differ), and estimated otherwise: those of a fit by their posterior
      median, others from moments
    """
    given: dict[str, Any] = {"score_scale": score_scale, "value_scale": value_scale}
    for name, value in given.items():
        if value is not None and not 0 < value < np.inf:
            raise unusable(name, "a positive number", value)
    if isinstance(subject, Observations):
        found = of_observations(subject, layer, with_described(subject, given), seed)
    elif "posterior" in getattr(subject, "children", ()):
        found = of_fit(subject, layer, given, seed)
    else:
        raise unusable("subject", "Observations or a fit", type(subject).__name__, "read files with hierattn.read")
    return Diagnosis(**vars(judge(found, seed)))
