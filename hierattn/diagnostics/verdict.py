"""Do these outputs follow the law? Yes, no and why not, or: these outputs could not have shown it."""

import json
from typing import Any, NamedTuple

import numpy as np

from hierattn.base.reasons import reason
from hierattn.diagnostics import reference
from hierattn.diagnostics.departures import departures
from hierattn.diagnostics.examination import Examination, examine
from hierattn.diagnostics.power import lacking, power
from hierattn.diagnostics.subject import Subject

NUMBERS = 2**20  # of outputs that are looked at
FEWER = 4  # simulated networks for one that is looked at, at least
ORDER = ("not_converged", "low_power", "unidentified")


class Verdict(NamedTuple):
    """On outputs: consistent with the law (True, False, or None: undecided), why, and what it is based on."""

    consistent: bool | None
    reasons: list[dict[str, Any]]
    outputs: np.ndarray
    examination: Examination | None
    powers: dict[str, float]


def judge(subject: Subject, seed: int) -> Verdict:
    """The verdict on a subject."""
    y = outputs_of(subject)
    reasons = of_the_fit(subject)
    if subject.law is None:
        fitted = subject.tree is not None and subject.observations.kernel is not None
        why = "the model fitted is another" if fitted else "the kernel of the inputs is not known"
        message = f"there is no law to hold the outputs against: {why}"
        return Verdict(None, [*reasons, reason("unidentified", message)], y, None, {})
    if len(y) < 2:
        message = "one network is Gaussian given its scores: nothing can be told from it"
        return Verdict(None, [*reasons, reason("low_power", message, networks=1)], y, None, {})
    y = y[: reference.pool_size(subject.law, len(y), y.shape[-1]) // FEWER]
    found = examine(subject, y, seed)
    wrong = departures(subject, y, found, seed)
    powers = power(found, len(y), seed)
    if wrong:
        return Verdict(False, [*wrong, *reasons], y, found, powers)
    reasons = sorted([*reasons, *lacking(powers, len(y))], key=lambda reason: ORDER.index(reason["code"]))
    return Verdict(None if reasons else True, reasons, y, found, powers)


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
