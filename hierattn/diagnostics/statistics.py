"""What is looked at in a set of networks: statistics made of means over networks, the independent units.

Outputs are seen in directions G over tokens, every token by itself and the directions that whiten E[Sigma]. With z = G' y, u
the mean of z^2 over a network's C coordinates and x the mean of z_c^2 z_c'^2 over pairs of different coordinates,

    size      log of the mean of u over whitened directions: moves with value_scale
    shape     mean of U' S U over that: moves with score_scale and with the kernel
    spread    E[x] / E[u]^2 - 1 = Var(v) / E[v]^2, how much networks differ: 0 where nothing is shared by coordinates
    within    E[z^4] / (3 E[x]) - 1, excess of the coordinates of one network: 0 if they are Gaussian given the scores
    evenness  Var(u) / E[u]^2 over 2 / C: 1 for Gaussian networks, more if scores are shared, 0 after an RMSNorm
    kurtosis  E[z^4] / (3 E[u]^2) - 1, excess of all outputs
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.inference.methods.moment_table import Directions

AT_ONCE = 2**20  # numbers held at once


class View(NamedTuple):
    """Where outputs are looked at: directions that whiten, weights of `spread` over all directions, coordinates C."""

    at: Directions
    token_scales: Float[np.ndarray, " s"]
    weights: Float[np.ndarray, " g"]
    coordinates: int

    @property
    def G(self) -> Float[np.ndarray, "s g"]:
        """Tokens that vary, each by itself, and whitened directions."""
        some = self.token_scales > 0
        return np.concatenate([np.diag(1 / np.where(some, self.token_scales, 1))[:, some], self.at.U], axis=1)

    @property
    def single(self) -> int:
        """How many of the directions are single tokens."""
        return int(np.sum(self.token_scales > 0))


class Statistics(NamedTuple):
    """Of one data set, or of many along a leading axis."""

    size: np.ndarray
    shape: np.ndarray
    spread: np.ndarray
    within: np.ndarray
    evenness: np.ndarray
    kurtosis: np.ndarray


def features(y: Float[np.ndarray, "network s coordinate"], view: View) -> Float[np.ndarray, "network f"]:
    """Numbers of every network whose means make the statistics: u, u^2, x and z^4 of every direction, and U' S U."""
    parts = np.array_split(y, 1 + y.size // AT_ONCE)
    return np.concatenate([_features(np.asarray(part, float), view) for part in parts])


def _features(y: np.ndarray, view: View) -> np.ndarray:
    C, t = view.coordinates, view.at.U.shape[1]
    z = view.G.T @ y
    square = z**2
    u, fourth = square.mean(axis=-1), (square**2).mean(axis=-1)
    across = (C * u**2 - fourth) / (C - 1) if C > 1 else fourth / 3  # one coordinate: as if it were Gaussian given the scores
    i, j = np.triu_indices(t)
    white = z[:, view.single :]
    shape = (white @ white.swapaxes(-1, -2))[:, i, j] / C
    return np.concatenate([u, u**2, across, fourth, shape], axis=1)


def statistics(means: Float[np.ndarray, "*any f"], view: View) -> Statistics:
    """From means of features over networks."""
    k, g = view.single, len(view.weights)
    u, squares, across, fourth = (means[..., a * g : (a + 1) * g] for a in range(4))
    total = u[..., k:].mean(axis=-1)
    kurtosis, within = fourth / (3 * u**2) - 1, fourth / (3 * across) - 1
    return Statistics(
        size=np.log(total),
        shape=means[..., 4 * g :] / total[..., None],
        spread=(across / u**2 - 1) @ view.weights,
        within=_both(within, k),
        evenness=(squares / u**2 - 1)[..., :k].mean(axis=-1) * view.coordinates / 2,
        kurtosis=np.stack([kurtosis[..., :k].mean(axis=-1), kurtosis[..., k:].mean(axis=-1)], axis=-1),
    )


def _both(x: np.ndarray, k: int) -> np.ndarray:
    """The mean over single tokens and the mean over whitened directions, averaged."""
    return (x[..., :k].mean(axis=-1) + x[..., k:].mean(axis=-1)) / 2


def spread_of_directions(means: Float[np.ndarray, " f"], directions: int) -> Float[np.ndarray, " g"]:
    """Spread of every direction by itself."""
    u, across = means[:directions], means[2 * directions : 3 * directions]
    return across / u**2 - 1


def replicates(
    pool: Float[np.ndarray, "N f"], networks: int, number: int, rng: np.random.Generator
) -> Float[np.ndarray, "number f"]:
    """Means over data sets of so many networks, each drawn from a pool of simulated networks."""
    few = max(1, AT_ONCE // networks)
    sums = []
    for first in range(0, number, few):
        chosen = rng.integers(0, len(pool), (min(few, number - first), networks))
        sums.append(pool[chosen].mean(axis=1) if networks < 64 else _means(pool, chosen))
    return np.concatenate(sums)


def _means(pool: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Means of chosen rows, without making all of them at once."""
    return np.array([pool[rows].mean(axis=0) for rows in chosen])
