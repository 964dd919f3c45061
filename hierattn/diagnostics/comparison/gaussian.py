"""Gaussian against law: is the Gaussian of infinitely many heads safe for one token, and who could tell?"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri

from hierattn.diagnostics.comparison.token import chosen
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal

LEVEL = POWER = 0.95


def against_gaussian(law: Law, token: int | None = None, coordinates: int = 1, seed: int = 0) -> dict[str, Any]:
    """Is the Gaussian of infinitely many heads safe for one token?

    KL of the law from it, the error of its 99.9 % quantile of |y| relative to the law's, and the networks needed to tell the
    two apart with 95 % power at the 5 % level by the likelihood ratio, if `coordinates` of each are seen. Without a token: the
    first of those that see most keys.
    """
    token = chosen(token, law.layer, law.shape)
    variance = law.with_infinite_head_dim().moments(token, seed).variance
    return {"token": token} | marginal_against_gaussian(law.marginal(token, seed=seed), variance, coordinates)


def marginal_against_gaussian(marginal: Marginal, variance: float, coordinates: int = 1) -> dict[str, Any]:
    """The same for a marginal and the variance of a Gaussian."""
    return {
        "kl": likelihood_ratio(marginal, variance, coordinates).forward,
        "quantile_error_999": float(-ndtri(0.0005) * np.sqrt(variance) / marginal.isf(0.0005) - 1),
        "networks_needed": networks_needed(marginal, variance, coordinates),
    }


def networks_needed(marginal: Marginal, variance: float, coordinates: int = 1) -> int | None:
    """Networks that tell a law from a Gaussian with 95 % power at the 5 % level; None if nothing could."""
    ratio = likelihood_ratio(marginal, variance, coordinates)
    separation, noise = ratio.forward + ratio.backward, ndtri(LEVEL) * ratio.sd_gaussian + ndtri(POWER) * ratio.sd_law
    return int(np.ceil((noise / separation) ** 2)) if separation > 1e-12 else None


class LikelihoodRatio(NamedTuple):
    """log(law / Gaussian) for one network: mean under the law, minus that under the Gaussian, and standard deviations."""

    forward: float
    backward: float
    sd_law: float
    sd_gaussian: float


def likelihood_ratio(marginal: Marginal, variance: float, coordinates: int = 1) -> LikelihoodRatio:
    """Of the law against a Gaussian, if `coordinates` of a network are seen.

    A network's coordinates matter through t = log of their mean square, which is log v + log(chi2_C / C) given v.
    """
    x, w, half = np.asarray(marginal.nodes.x[0]), np.asarray(marginal.nodes.w[0]), coordinates / 2
    t = np.arange(x.min() - 80 / coordinates - 9 / half**0.5, x.max() + 4 * np.log1p(9 / half**0.5), 0.04 / half**0.5)

    def log_density(x: np.ndarray) -> np.ndarray:
        return half * (t[:, None] - x - np.exp(t[:, None] - x)) + half * np.log(half) - gammaln(half)

    with np.errstate(divide="ignore"):
        parts = log_density(x) + np.log(w)
    largest = parts.max(axis=1)
    law, gaussian = largest + np.log(np.exp(parts - largest[:, None]).sum(axis=1)), log_density(np.log([variance]))[:, 0]
    ratio, p, q = law - gaussian, np.exp(law) * (t[1] - t[0]), np.exp(gaussian) * (t[1] - t[0])
    means = p @ ratio, q @ ratio
    sds = (float(np.sqrt(weight @ (ratio - mean) ** 2)) for weight, mean in zip((p, q), means, strict=True))
    return LikelihoodRatio(float(means[0]), float(-means[1]), *sds)
