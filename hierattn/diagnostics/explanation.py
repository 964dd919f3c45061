"""Why outputs do not follow the law: which departures explain what the tests refused.

The hierarchy comes first. Networks that differ less than Gaussian ones were normalised; if the coordinates of a network know
nothing of each other its scores are not shared, and outputs are Gaussian, or heavy-tailed without it. Only where the hierarchy
stands it makes sense to ask for scales and kernel: if estimated scales mend everything, those are named that exclude the given
ones. One wrong kernel comes before two wrong scales, and before one that is wrong by more than a factor of two. Kernels that
are right as a set, but do not predict their own networks, are in the wrong order.
"""

from typing import Any

import numpy as np
from scipy.special import ndtri

from hierattn.base.errors import InputError
from hierattn.diagnostics import testing
from hierattn.diagnostics.departures import (
    coordinates,
    gaussian,
    kernel,
    no_shared_scores,
    normalised,
    pairing,
    scale,
    score_scale,
    spread,
)
from hierattn.diagnostics.examination import Examination, data_sets, examine
from hierattn.diagnostics.subject import Subject, of_observations
from hierattn.layer.record import SCALES

FAR = 2.0  # factor of score_scale that a wrong kernel explains as well


def explain(subject: Subject, y: np.ndarray, found: Examination, seed: int) -> list[dict[str, Any]]:
    """Why the law is refused; empty if it is not."""
    refused = found.refused
    if not refused:
        return []
    if "normalised" in refused:
        return [normalised.explain(float(found.seen.evenness), found.corrected["normalised"])]
    rng = np.random.default_rng(seed + 1)
    low = "spread" in refused and found.tests["spread"] < 0
    if low and (missing := without_hierarchy(y, found, rng)):
        return [missing]
    if "within" in refused:
        kind = no_shared_scores.explain_by_both if low else coordinates.explain
        return [kind(float(found.seen.within), found.corrected["within"])]
    return of_scales_and_kernel(subject, y, found, seed)


def without_hierarchy(y: np.ndarray, found: Examination, rng: np.random.Generator) -> dict[str, Any] | None:
    """Is nothing shared by the coordinates of a network, and are they Gaussian, or heavy-tailed by themselves?"""
    view = found.reference.view
    shared = testing.sharing(y, view, rng)
    if shared <= testing.LEVEL:
        return None
    null = data_sets(found.reference.among("gaussian"), view, len(y), testing.REPLICATES, rng)
    p = [float(testing.ranks(x, each, True)) for x, each in zip(found.seen.kurtosis, null.kurtosis.T, strict=True)]
    p_gaussian = min(1.0, 2 * min(p))
    numbers = {
        "spread": float(found.seen.spread),
        "spread_law": float(found.at.mean.spread),
        "excess_kurtosis": float(3 * found.seen.kurtosis[0]),
        "sharing_p_value": shared,
        "gaussian_p_value": p_gaussian,
    }
    if p_gaussian >= testing.LEVEL:
        return gaussian.explain(numbers)
    return no_shared_scores.explain(numbers) if y.shape[2] > 1 else None  # one coordinate shares nothing anyway


def of_scales_and_kernel(subject: Subject, y: np.ndarray, found: Examination, seed: int) -> list[dict[str, Any]]:
    """The hierarchy stands: which of scales, kernel, heads is wrong?"""
    numbers = {f"{name}_p_value": p for name, p in found.corrected.items() if name in found.refused}
    given, shape_off = subject.given, bool({"score_scale", "kernel"} & found.refused)
    freed = None
    if given and (shape_off or "scale" in found.refused):
        freed = with_free_scales(subject, seed)
        if freed is not None and not freed.at_an_end and not examine(freed, y, seed).refused:
            return scales_that_mend(given, freed, numbers, found.refused == {"scale"})
    if shape_off:
        return [kernel.explain(freed is not None or not given, numbers)]
    wrong = []
    if "pairing" in found.refused:
        wrong.append(pairing.explain(float(found.seen.pairing), float(found.at.mean.pairing), numbers))
    if "scale" in found.refused and found.refused <= {"scale", "pairing"}:
        wrong.append(scale.explain(given["value_scale"], float(np.exp(found.tests["scale"] / 2)), "", numbers))
    more, law = found.tests["spread"] > 0, float(found.at.mean.spread)
    return wrong or [spread.explain(more, float(found.seen.spread), law, numbers)]


def with_free_scales(subject: Subject, seed: int) -> Subject | None:
    """The same outputs against the law with estimated scales, if they can be estimated: one for all heads."""
    if subject.heads_differ:
        return None
    try:
        return of_observations(subject.observations, subject.layer, dict.fromkeys(SCALES), seed)
    except InputError:
        return None


def scales_that_mend(given: dict[str, Any], freed: Subject, numbers: dict, size_only: bool) -> list[dict[str, Any]]:
    """With estimated scales all is well: which of the given ones are not among them? One, if size alone is off."""
    logs = {name: np.log(freed.draws[name] / given[name]) for name in given}
    z = {name: abs(float(np.median(x) / x.std())) for name, x in logs.items()}
    factor = {name: float(np.median(freed.draws[name])) / given[name] for name in given}
    wrong = [name for name in given if z[name] > -ndtri(testing.LEVEL / 2)]
    wrong = [max(z, key=lambda name: z[name])] if size_only or not wrong else wrong
    far = "score_scale" in wrong and abs(np.log(factor["score_scale"])) > np.log(FAR)
    certain = len(wrong) == 1 and not far
    words = {"score_scale": score_scale.explain, "value_scale": scale.explain}
    prefix = "" if certain else "unless the kernel is wrong, "
    each = [words[name](given[name], factor[name], prefix, numbers) for name in wrong]
    return each if certain else [kernel.or_far_scales(numbers), *each]
