"""Why outputs do not follow the law.

The hierarchy comes first. Networks that differ less than Gaussian ones were normalised; if the coordinates of a network know
nothing of each other its scores are not shared, and outputs are Gaussian, or heavy-tailed without it. Only where the hierarchy
stands it makes sense to ask for scales and kernel: if estimated scales mend everything, those are named that exclude the given
ones. One wrong kernel comes before two wrong scales, and before one that is wrong by more than a factor of two.
"""

from typing import Any

import numpy as np
from scipy.special import ndtri

from hierattn.base.errors import InputError
from hierattn.base.reasons import reason
from hierattn.diagnostics import testing
from hierattn.diagnostics.examination import Examination, data_sets, examine
from hierattn.diagnostics.subject import SCALES, Subject, of_observations

FAR = 2.0  # factor of score_scale that a wrong kernel explains as well


def departures(subject: Subject, y: np.ndarray, found: Examination, seed: int) -> list[dict[str, Any]]:
    """Why the law is refused; empty if it is not."""
    refused = found.refused
    if not refused:
        return []
    if "normalised" in refused:
        return [normalised(found)]
    rng = np.random.default_rng(seed + 1)
    low = "spread" in refused and found.tests.spread < 0
    if low and (missing := without_hierarchy(y, found, rng)):
        return [missing]
    if "within" in refused:
        numbers = {"within": float(found.seen.within), "p_value": found.corrected["within"]}
        if low:
            message = "networks differ less, and coordinates of one network more, than shared scores allow"
            return [reason("no_shared_scores", message, **numbers)]
        return [reason("coordinates", "the coordinates of one network are not Gaussian given its scores", **numbers)]
    return of_scales_and_kernel(subject, y, found, seed)


def normalised(found: Examination) -> dict[str, Any]:
    """Networks are too much alike."""
    ratio = float(found.seen.evenness)
    message = f"networks differ less than Gaussian ones would ({ratio:.2g} of their variance): outputs were normalised"
    return reason("normalised", message, variance_ratio=ratio, p_value=found.corrected["normalised"])


def without_hierarchy(y: np.ndarray, found: Examination, rng: np.random.Generator) -> dict[str, Any] | None:
    """Is nothing shared by the coordinates of a network, and are they Gaussian, or heavy-tailed by themselves?"""
    view = found.reference.view
    shared = testing.sharing(y, view, rng)
    if shared <= testing.LEVEL:
        return None
    gaussian = data_sets(found.reference.gaussian, view, len(y), testing.REPLICATES, rng)
    p = [float(testing.ranks(x, null, True)) for x, null in zip(found.seen.kurtosis, gaussian.kurtosis.T, strict=True)]
    p_gaussian = min(1.0, 2 * min(p))
    numbers = {
        "spread": float(found.seen.spread),
        "spread_law": float(found.at.mean.spread),
        "excess_kurtosis": float(3 * found.seen.kurtosis[0]),
        "sharing_p_value": shared,
        "gaussian_p_value": p_gaussian,
    }
    if p_gaussian < testing.LEVEL and y.shape[2] == 1:  # one coordinate shares nothing anyway
        return None
    if p_gaussian < testing.LEVEL:
        message = "coordinates are heavy-tailed, but those of one network share no scores"
        return reason("no_shared_scores", message, **numbers)
    return reason("gaussian", "networks do not differ and outputs are Gaussian: no trace of random scores", **numbers)


def of_scales_and_kernel(subject: Subject, y: np.ndarray, found: Examination, seed: int) -> list[dict[str, Any]]:
    """The hierarchy stands: which of scales, kernel, heads is wrong?"""
    numbers = {f"{name}_p_value": p for name, p in found.corrected.items() if name in found.refused}
    given, shape_off = subject.given, bool({"score_scale", "kernel"} & found.refused)
    if given and (shape_off or "scale" in found.refused):
        freed = with_free_scales(subject, seed)
        if freed is not None and not freed.at_an_end and not examine(freed, y, seed).refused:
            return scales_that_mend(given, freed, numbers, found.refused == {"scale"})
    if found.refused == {"scale"} and found.tests.scale is not None:
        return [wrong_scale(given, "value_scale", given["value_scale"] * np.exp(float(found.tests.scale) / 2), numbers)]
    if shape_off:
        return [reason("kernel", "no scales make the covariance over tokens what this kernel leads to", **numbers)]
    return [spread_only(found, numbers)]


def with_free_scales(subject: Subject, seed: int) -> Subject | None:
    """The same outputs against the law with estimated scales, if they can be estimated."""
    try:
        return of_observations(subject.observations, subject.layer, dict.fromkeys(SCALES), seed)
    except InputError:
        return None


def scales_that_mend(given: dict[str, float], freed: Subject, numbers: dict, size_only: bool) -> list[dict[str, Any]]:
    """With estimated scales all is well: which of the given ones are not among them? One, if size alone is off."""
    logs = {name: np.log(freed.draws[name] / given[name]) for name in given}
    z = {name: abs(float(np.median(x) / x.std())) for name, x in logs.items()}
    estimate = {name: float(np.median(freed.draws[name])) for name in given}
    wrong = [name for name in given if z[name] > -ndtri(testing.LEVEL / 2)]
    wrong = [max(z, key=lambda name: z[name])] if size_only or not wrong else wrong
    far = "score_scale" in wrong and abs(np.log(estimate["score_scale"] / given["score_scale"])) > np.log(FAR)
    if len(wrong) == 1 and not far:
        return [wrong_scale(given, wrong[0], estimate[wrong[0]], numbers)]
    message = "the kernel is not that of these outputs, or scales are far from the given ones"
    each = [wrong_scale(given, name, estimate[name], numbers, "unless the kernel is wrong, ") for name in wrong]
    return [reason("kernel", message, **numbers), *each]


def wrong_scale(given: dict, name: str, estimate: float, numbers: dict, prefix: str = "") -> dict[str, Any]:
    """One scale is not the given one."""
    message = f"{prefix}{name} is {estimate:.3g} rather than {given[name]:.3g}"
    code = {"score_scale": "score_scale", "value_scale": "scale"}[name]
    return reason(code, message, given=given[name], estimate=float(estimate), **numbers)


def spread_only(found: Examination, numbers: dict[str, float]) -> dict[str, Any]:
    """The covariance over tokens is right, but not how much networks differ."""
    seen, law = float(found.seen.spread), float(found.at.mean.spread)
    how = "more" if found.tests.spread > 0 else "less"
    message = f"networks differ {how} than the law says: the number of heads, or head_dim, may be wrong"
    return reason("spread", message, spread=seen, spread_law=law, **numbers)
