"""Do these outputs follow the law? Yes, no and why not, or: these outputs could not have shown it."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hierattn.base.reasons import reason
from hierattn.diagnostics import power, predictive, reference
from hierattn.diagnostics.comparison import tails
from hierattn.diagnostics.examination import Examination, examine
from hierattn.diagnostics.explanation import explain
from hierattn.diagnostics.subject import Subject
from hierattn.law.marginal import Marginal

NUMBERS = 2**20  # of outputs that are looked at
FEWER = 4  # simulated networks for one that is looked at, at least
ORDER = ("not_converged", "low_power", "unidentified")
WORDS = {True: "CONSISTENT", False: "NOT CONSISTENT", None: "UNDECIDED"}


@dataclass(frozen=True, eq=False)
class Judgement:
    """On outputs, and what it is based on.

    - consistent: with the law: True, False, or None where these outputs could not have shown a departure
    - reasons: {code, message, numbers}: why, the most important first
    - outputs: those that were looked at
    - examination: the tests; None where there is no law to hold the outputs against
    - powers: with which departures would have been seen
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

    @property
    def tokens(self) -> list[int]:
        """Tokens whose distributions are looked at, one by one: a few of those that see most keys."""
        return [] if self.subject.law is None else tails.tokens_of(self.subject.law)

    @cached_property
    def marginals(self) -> list[Marginal]:
        """Distributions of these tokens under the law."""
        return [] if self.subject.law is None else tails.marginals(self.subject.law, self.seed)

    @cached_property
    def tails(self) -> tails.Tails | None:
        """Tails of these tokens against the law's."""
        return tails.tails(self.outputs[:, self.tokens], self.marginals, self.seed) if self.marginals else None

    @cached_property
    def power_curve(self) -> dict[int, dict[str, float]]:
        """Power for other numbers of networks."""
        return {} if self.examination is None else power.curve(self.examination, len(self.outputs), self.seed)

    @cached_property
    def predictive(self) -> dict[str, predictive.Check]:
        """Statistics of the outputs among those of predicted ones."""
        return predictive.checks(self.subject, self.outputs, self.seed)


def judge(subject: Subject, seed: int) -> Judgement:
    """The verdict on a subject."""
    y = outputs_of(subject)
    reasons = of_the_fit(subject)
    if subject.law is None:
        fitted = subject.tree is not None and subject.observations.kernel is not None
        why = "the model fitted is another" if fitted else "the kernel of the inputs is not known"
        message = f"there is no law to hold the outputs against: {why}"
        return Judgement(subject, seed, None, [*reasons, reason("unidentified", message)], y, None, {})
    if len(y) < 2:
        message = "one network is Gaussian given its scores: nothing can be told from it"
        return Judgement(subject, seed, None, [*reasons, reason("low_power", message, networks=1)], y, None, {})
    y = y[: reference.pool_size(subject.law, len(y), y.shape[-1]) // FEWER]
    found = examine(subject, y, seed)
    wrong = explain(subject, y, found, seed)
    powers = power.power(found, len(y), seed)
    if wrong:
        return Judgement(subject, seed, False, [*wrong, *reasons], y, found, powers)
    reasons = sorted([*reasons, *power.lacking(powers, len(y))], key=lambda reason: ORDER.index(reason["code"]))
    return Judgement(subject, seed, None if reasons else True, reasons, y, found, powers)


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
