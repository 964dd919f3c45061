"""A diagnosis: outputs, or a fit, against the law; the verdict with its reasons and the numbers behind them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.diagnostics import power, predictive, record, tails
from hierattn.diagnostics.examination import Examination
from hierattn.diagnostics.subject import Subject, of_fit, of_observations
from hierattn.diagnostics.verdict import judge
from hierattn.law.marginal import Marginal
from hierattn.layer.architecture import Architecture
from hierattn.observed.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree

WORDS = {True: "CONSISTENT", False: "NOT CONSISTENT", None: "UNDECIDED"}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What to believe of outputs.

    consistent  with the law: True, False, or None where these outputs could not have shown a departure
    reasons     {code, message, numbers}: why, the most important first
    outputs     those that were looked at
    powers      with which departures would have been seen
    """

    subject: Subject
    seed: int
    consistent: bool | None
    reasons: list[dict[str, Any]]
    outputs: np.ndarray
    examination: Examination | None
    powers: dict[str, float]

    @property
    def verdict(self) -> str:
        """In words."""
        return WORDS[self.consistent]

    @property
    def codes(self) -> list[str]:
        """Codes of the reasons."""
        return [reason["code"] for reason in self.reasons]

    @cached_property
    def marginals(self) -> list[Marginal]:
        """Distributions of the first tokens under the law."""
        return [] if self.subject.law is None else tails.marginals(self.subject.law, self.seed)

    @cached_property
    def tails(self) -> tails.Tails | None:
        """Tails of the outputs against the law's."""
        return tails.tails(self.outputs, self.marginals, self.seed) if self.marginals else None

    @cached_property
    def power_curve(self) -> dict[int, dict[str, float]]:
        """Power for other numbers of networks."""
        return {} if self.examination is None else power.curve(self.examination, len(self.outputs), self.seed)

    @cached_property
    def predictive(self) -> dict[str, predictive.Check]:
        """Statistics of the outputs among those of predicted ones."""
        return predictive.checks(self.subject, self.outputs, self.seed)

    @cached_property
    def record(self) -> dict[str, Any]:
        """Every number, as JSON has it."""
        return record.of_diagnosis(self)

    def _repr_html_(self) -> str:
        from hierattn.reporting.page import notebook  # builds on this file

        return notebook(self)

    def __repr__(self) -> str:
        return "\n".join([self.verdict, *(f"  {reason['message']}" for reason in self.reasons)])


def diagnose(
    subject: "Observations | DataTree",
    layer: Architecture | None = None,
    *,
    score_scale: float | None = None,
    value_scale: float | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Do these outputs follow the law?

    subject       `Observations`, or a fit (DataTree)
    layer         heads, mask, head_dim, ... where the subject does not know them; its scales do not matter
    score_scale   with value_scale: a law fixed in advance. Scales that are not given are those of the observations' layer, if
                  it is described, and estimated otherwise: those of a fit by their posterior median, others from moments
    """
    given = {"score_scale": score_scale, "value_scale": value_scale}
    for name, value in given.items():
        if value is not None and not 0 < value < np.inf:
            raise unusable(name, "a positive number", value)
    if isinstance(subject, Observations):
        if subject.layer is not None:
            own = {name: float(getattr(subject.layer, name)[0]) for name in given}
            given = {name: own[name] if value is None else value for name, value in given.items()}
        found = of_observations(subject, layer, given, seed)
    elif "posterior" in getattr(subject, "children", ()):
        found = of_fit(subject, layer, given, seed)
    else:
        raise unusable("subject", "Observations or a fit", type(subject).__name__, "read files with hierattn.read")
    return Diagnosis(found, seed, **judge(found, seed)._asdict())
