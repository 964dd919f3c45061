"""A diagnosis: outputs, or a fit, against the law; the verdict with its reasons and the numbers behind them."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierattn.architecture import Architecture
from hierattn.diagnostics import reference, verdict
from hierattn.diagnostics.subject import Subject, of_fit, of_observations
from hierattn.errors import unusable
from hierattn.inference.verdict import reason
from hierattn.observations import Observations

if TYPE_CHECKING:
    from xarray import DataTree

WORDS = {True: "CONSISTENT", False: "NOT CONSISTENT", None: "UNDECIDED"}
NUMBERS = 2**20  # of outputs that are looked at
FEWER = 4  # simulated networks for one that is looked at, at least
ORDER = ("not_converged", "low_power", "unidentified")


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What to believe of outputs.

    consistent  with the law: True, False, or None where these outputs could not have shown a departure
    reasons     {code, message, numbers}: why, the most important first
    outputs     those that were looked at
    powers      with which departures would have been seen
    """

    subject: Subject
    outputs: np.ndarray
    consistent: bool | None
    reasons: list[dict[str, Any]]
    examination: verdict.Examination | None
    powers: dict[str, float]
    seed: int

    @property
    def codes(self) -> list[str]:
        """Codes of the reasons."""
        return [reason["code"] for reason in self.reasons]

    @property
    def record(self) -> dict[str, Any]:
        """Every number, as JSON has it."""
        from hierattn.diagnostics.record import of_diagnosis

        return of_diagnosis(self)

    def _repr_html_(self) -> str:
        from hierattn.reporting.page import summary_html

        return summary_html(self)

    def __repr__(self) -> str:
        lines = [WORDS[self.consistent], *(f"  {reason['message']}" for reason in self.reasons)]
        return "\n".join(lines)


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
    score_scale   with value_scale: a law fixed in advance. Scales that are not given are estimated: those of a fit by their
                  posterior median, others from moments
    """
    given = {"score_scale": score_scale, "value_scale": value_scale}
    for name, value in given.items():
        if value is not None and not 0 < value < np.inf:
            raise unusable(name, "a positive number", value)
    if isinstance(subject, Observations):
        return judge(of_observations(subject, layer, given, seed), seed)
    return judge(of_fit(subject, layer, given, seed), seed)


def judge(subject: Subject, seed: int) -> Diagnosis:
    """The verdict on a subject."""
    y = outputs_of(subject)
    reasons = of_the_fit(subject)
    if subject.law is None:
        message = "there is no law to hold the outputs against: the kernel of the inputs is not known"
        return Diagnosis(subject, y, None, [*reasons, reason("unidentified", message)], None, {}, seed)
    if len(y) < 2:
        message = "one network is Gaussian given its scores: nothing can be told from it"
        return Diagnosis(subject, y, None, [*reasons, reason("low_power", message, networks=1)], None, {}, seed)
    y = y[: reference.pool_size(subject.law, len(y), y.shape[-1]) // FEWER]
    found = verdict.examine(subject, y, seed)
    wrong = verdict.departures(subject, y, found, seed)
    powers = verdict.power(found, len(y), seed)
    if wrong:
        return Diagnosis(subject, y, False, [*wrong, *reasons], found, powers, seed)
    reasons = sorted([*reasons, *verdict.lacking_power(powers, len(y))], key=lambda reason: ORDER.index(reason["code"]))
    return Diagnosis(subject, y, None if reasons else True, reasons, found, powers, seed)


def outputs_of(subject: Subject) -> np.ndarray:
    """The outputs that are looked at: all of them, or of as many networks as there is room for."""
    y = subject.observations.outputs
    return np.asarray(y[: max(2, NUMBERS // y[0].size)], float)


def of_the_fit(subject: Subject) -> list[dict[str, Any]]:
    """Why a fit, or an estimate, is not to be relied on."""
    found = []
    if subject.tree is not None:
        said = json.loads(subject.tree.attrs["reasons"])
        if subject.tree.attrs["verdict"] != "CONVERGED":
            why = "; ".join(reason["message"] for reason in said if reason["code"] in ("rhat", "ess", "divergences", "ebfmi"))
            found.append(reason("not_converged", f"the fit did not converge: {why}"))
    else:
        said = list(subject.reasons)
    for each in said:
        if each["code"] in ("unidentified", "prior_dominated", "two_modes", "at_an_end") and subject.free:
            found.append({**each, "code": "unidentified"})
    return found
