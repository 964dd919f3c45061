"""What the data say about each parameter: which the design cannot inform, which stay where the prior put them."""

from typing import Any

import arviz
import numpy as np

from hierattn.base.reasons import reason
from hierattn.inference.problem import Problem
from hierattn.inference.verdict import entries

FEWEST_DRAWS = 100  # that importance sampling can be asked about
PSENSE = 0.05  # sensitivity to the prior from which a posterior depends on it
PRIOR_WIDTH = 0.5  # of the prior's 90 % interval (in the logarithm) that a posterior interval covers if data say little


def never_identified(problem: Problem) -> dict[str, str]:
    """Parameters that outputs of this design cannot inform, whatever they are."""
    obs, layer = problem.observations, problem.layer
    tokens = obs.s if obs.kernel is None else obs.kernel.shape[-1]
    weighing = layer.weighing(tokens, tokens)
    if weighing.homogeneous:
        why = f"with {layer.score_function} scores only the product of both scales matters"
        return dict.fromkeys(("score_scale", "value_scale"), why)
    if obs.kernel is None or "concentration" in problem.prior or not weighing.sums_to_one:  # K has a prior itself
        return {}
    K, k = obs.kernel, obs.kernel.shape[-1]
    allowed = np.asarray(layer.allowed(k, k))[obs.tokens]
    if np.all(allowed.sum(axis=1) == 1):
        return {"score_scale": "every observed token has one key, so that scores change nothing"}
    norms, one = np.diagonal(K, axis1=-2, axis2=-1), allowed.argmax(axis=1)
    apart = norms[..., None, :] + norms[..., one, None] - 2 * K[..., one, :]  # squared distance of keys from one of them
    if np.all(norms[..., obs.tokens, None] * apart * allowed <= 1e-12 * np.abs(K).max() ** 2):
        return {"score_scale": "every observed token has keys of the same inputs, so that scores change nothing"}
    return {}


def of_design(problem: Problem) -> list[dict[str, Any]]:
    """What these observations could not have shown."""
    M = problem.observations.networks
    if M == 1:
        message = "one network only: given its scores it is Gaussian, so that the hierarchy cannot be seen"
        return [reason("one_network", message, networks=1)]
    if M < 10:
        return [reason("few_networks", f"{M} networks only: the spread between networks is hardly seen", networks=M)]
    return []


def identification(
    draws: dict[str, np.ndarray], prior: dict[str, np.ndarray], never: dict[str, str]
) -> tuple[dict[str, bool], list[dict[str, Any]]]:
    """Which entries of parameters the data inform: those whose 90 % interval is much shorter than the prior's.

    Lengths are those of the logarithm where parameters are positive. never: parameters that no data of this design could
    inform, with the reason.
    """
    identified: dict[str, bool] = {}
    found = []
    for name, x in draws.items():
        if name in never:
            identified |= dict.fromkeys((entry for entry, _ in entries(name, x)), False)
            found.append(reason("unidentified", f"{name} is not identified: {never[name]}"))
            continue
        before = dict(entries(name, prior[name])) if name in prior else {}
        ratios = {entry: _length_ratio(values, before[entry]) for entry, values in entries(name, x) if entry in before}
        identified |= {entry: ratio < PRIOR_WIDTH for entry, ratio in ratios.items()}
        if not all(identified[entry] for entry in ratios):
            entry = max(ratios, key=lambda entry: ratios[entry])
            message = f"{entry} is hardly informed by the data: its interval is {ratios[entry]:.0%} as long as the prior's"
            found.append(reason("prior_dominated", message, ratio=ratios[entry]))
    return identified, found


def sensitivity(tree: Any, names: list[str]) -> list[dict[str, Any]]:
    """Parameters whose posterior moves if their priors are raised to a power near 1 (Kallioinen et al. 2024), by ArviZ."""
    if not names or tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"] < FEWEST_DRAWS:
        return []
    sensitive = arviz.psense(tree, var_names=names, group="prior", group_var_names=names)
    found = []
    for name in names:
        value = float(sensitive[name].max())
        if value > PSENSE:
            message = f"{name} depends on the prior: power-scaling sensitivity {value:.2f}, more than {PSENSE}"
            found.append(reason("prior_sensitive", message, sensitivity=value))
    return found


def _length_ratio(posterior: np.ndarray, prior: np.ndarray) -> float:
    """Length of a 90 % interval over that of the prior."""
    if min(posterior.min(), prior.min()) > 0:
        posterior, prior = np.log(posterior), np.log(prior)
    lengths = [float(np.ptp(np.quantile(x, [0.05, 0.95]))) for x in (posterior, prior)]
    return lengths[0] / lengths[1] if lengths[1] else np.inf
