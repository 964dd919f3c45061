"""Tails and kurtosis of outputs against the law and against the Gaussian of equal variance, with errors over networks.

Coordinates of one network share its scores, so that networks, not coordinates, are drawn with replacement for every interval.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from hierattn.diagnostics import reference
from hierattn.diagnostics.comparison.token import TAILS, tokens_that_see_most
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal
from hierattn.numerics import mixtures
from hierattn.numerics.mixtures import Nodes

RESAMPLED = 400  # sets of networks drawn with replacement
INTERVAL = 0.9
MOST_TOKENS = 4  # tokens whose distributions are looked at
PROBABILITIES = np.concatenate([np.linspace(0.02, 0.98, 25), [0.99, 0.995, 0.999, 0.9995, 0.9999]])  # of |y|
POOL = 2**14  # networks simulated where every network has a kernel of its own


class Tails(NamedTuple):
    """Quantiles of |y|, pooled over tokens of unit variance under the law, and how often the law's own are exceeded.

    - law, gaussian, observed, low, high: quantiles at PROBABILITIES, observed ones with their interval
    - given_network: the same for outputs divided by their network's root mean square
    - exceedances: {percent, observed, low, high, gaussian, bound} for each: shares over the law's
    """

    law: np.ndarray
    gaussian: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    given_network: np.ndarray
    exceedances: list[dict[str, Any]]


def tokens_of(law: Law) -> list[int]:
    """Tokens whose distributions are looked at: a few of those that see most keys."""
    return tokens_that_see_most(law.layer, law.shape)[:MOST_TOKENS]


def marginals(law: Law, seed: int) -> list[Marginal]:
    """Distributions of those tokens: exact, or over networks with a kernel each by simulation."""
    tokens = tokens_of(law)
    if law.L_k.ndim == 2:
        return [law.marginal(token, seed=seed) for token in tokens]
    Sigma = reference.covariances(law, max(POOL, len(law.L_k)), seed)
    weights = np.full(len(Sigma), 1 / len(Sigma))
    rows = [mixtures.compress(np.log(Sigma[:, i, i]), weights) for i in tokens]
    return [Marginal(Nodes(row.x[None], row.w[None]), "Monte Carlo") for row in rows]


def tails(y: np.ndarray, laws: list[Marginal], seed: int) -> Tails:
    """Of outputs (network, token, coordinate) of the tokens that these laws are of."""
    scale = np.sqrt([float(law.variance) for law in laws])
    z = np.abs(y) / scale[:, None]
    quantiles = np.mean([law.isf((1 - PROBABILITIES) / 2) for law in laws] / scale[:, None], axis=0)
    resampled = bootstrap(lambda chosen: np.quantile(chosen, PROBABILITIES), thin(z), seed)
    own = z / np.sqrt((z**2).mean(axis=-1, keepdims=True))
    return Tails(
        law=quantiles,
        gaussian=-ndtri((1 - PROBABILITIES) / 2),
        observed=np.quantile(z, PROBABILITIES),
        low=np.quantile(resampled, (1 - INTERVAL) / 2, axis=0),
        high=np.quantile(resampled, (1 + INTERVAL) / 2, axis=0),
        given_network=np.quantile(own, PROBABILITIES),
        exceedances=[exceedance(y, laws, p, seed) for p in TAILS.values()],
    )


def exceedance(y: np.ndarray, laws: list[Marginal], p: float, seed: int) -> dict[str, Any]:
    """How often |y| exceeds what the law exceeds with probability p, over p; the Gaussian's share, and the law's bound."""
    limit = np.array([float(law.isf(p / 2)) for law in laws])
    sd = np.sqrt([float(law.variance) for law in laws])
    share = (np.abs(y) > limit[:, None]).mean(axis=(1, 2)) / p
    means = bootstrap(np.mean, share, seed)
    bounded = all(np.isfinite(law.v_max) for law in laws)
    bound = float(np.mean([law.tail_bound(t) for law, t in zip(laws, limit, strict=True)]) / p) if bounded else None
    return {
        "percent": round(100 * (1 - p), 2),
        "observed": float(share.mean()),
        "low": float(np.quantile(means, (1 - INTERVAL) / 2)),
        "high": float(np.quantile(means, (1 + INTERVAL) / 2)),
        "gaussian": float(np.mean(2 * ndtr(-limit / sd)) / p),
        "bound": bound,
        "expected": float(share.size * y.shape[2] * len(laws) * p),
    }


def kurtosis(y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Excess kurtosis of every token with its interval over networks."""
    second, fourth = (y**2).mean(axis=2), (y**4).mean(axis=2)
    both = np.stack([second, fourth], axis=1)

    def excess(chosen: np.ndarray) -> np.ndarray:
        a, b = chosen.mean(axis=0)
        return b / a**2 - 3

    drawn = bootstrap(excess, both, seed)
    low, high = np.quantile(drawn, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=0)
    return {"observed": excess(both), "sd": drawn.std(axis=0), "low": low, "high": high}


def bootstrap(statistic: Any, networks: np.ndarray, seed: int) -> np.ndarray:
    """A statistic of networks drawn with replacement, many times."""
    rng = np.random.default_rng(seed)
    return np.array([statistic(networks[rng.integers(0, len(networks), len(networks))]) for _ in range(RESAMPLED)])


def thin(z: np.ndarray, most: int = 2**17) -> np.ndarray:
    """All networks, with fewer of their coordinates where they are very many."""
    return z[:, :, : max(1, most // (z.shape[0] * z.shape[1]))]
