"""What is looked at in a set of networks: statistics made of means over networks, the independent units.

Outputs are seen in directions G over tokens, every token by itself and the directions that whiten E[Sigma]. With z = G' y, u
the mean of z^2 over a network's C coordinates and x the mean of z_c^2 z_c'^2 over pairs of different coordinates,

    size      log of the mean of u over whitened directions: moves with value_scale
    shape     mean of U' S U over that: moves with score_scale and with the kernel
    spread    E[x] / E[u]^2 - 1 = Var(v) / E[v]^2, how much networks differ: 0 where nothing is shared by coordinates
    within    E[z^4] / (3 E[x]) - 1, excess of the coordinates of one network: 0 if they are Gaussian given the scores
    evenness  Var(u) / E[u]^2 over 2 / C: 1 for Gaussian networks, more if scores are shared, 0 after an RMSNorm
    kurtosis  E[z^4] / (3 E[u]^2) - 1, excess of all outputs
    pairing   where every network has a kernel of its own: mean of tr(S Q_k) over size, Q_k what kernel k adds to the others'
              mean covariance. The slope of networks' covariances on what their own kernels predict: 1, or 0 in random order
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.inference.methods.moment_table import Directions

AT_ONCE = 2**20  # numbers held at once


class View(NamedTuple):
    """Where outputs are looked at: directions that whiten, weights of `spread` over all directions, coordinates C.

    - kernels: how many there are; networks take them in turn. One for all, or one for each network that was observed
    - own: the matrices Q_k of `pairing`; None with one kernel, or where all kernels predict much the same
    """

    at: Directions
    token_scales: Float[np.ndarray, " s"]
    weights: Float[np.ndarray, " g"]
    coordinates: int
    kernels: int = 1
    own: Float[np.ndarray, "k s s"] | None = None

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
    pairing: np.ndarray


def features(y: Float[np.ndarray, "network s coordinate"], view: View) -> Float[np.ndarray, "network f"]:
    """Numbers of every network whose means make the statistics: u, u^2, x and z^4 of every direction, U' S U, tr(S Q)."""
    parts, turn = 1 + y.size // AT_ONCE, np.arange(len(y)) % view.kernels
    each = zip(np.array_split(y, parts), np.array_split(turn, parts), strict=True)
    return np.concatenate([_features(np.asarray(part, float), kernel, view) for part, kernel in each])


def _features(y: np.ndarray, kernel: np.ndarray, view: View) -> np.ndarray:
    C, t = view.coordinates, view.at.U.shape[1]
    z = view.G.T @ y
    square = z**2
    u, fourth = square.mean(axis=-1), (square**2).mean(axis=-1)
    across = (C * u**2 - fourth) / (C - 1) if C > 1 else fourth / 3  # one coordinate: as if it were Gaussian given the scores
    i, j = np.triu_indices(t)
    white = z[:, view.single :]
    shape = (white @ white.swapaxes(-1, -2))[:, i, j] / C
    found = [u, u**2, across, fourth, shape]
    if view.own is not None:
        found.append(np.einsum("nic,nij,njc->n", y, view.own[kernel], y, optimize=True)[:, None] / C)
    return np.concatenate(found, axis=1)


def statistics(means: Float[np.ndarray, "*any f"], view: View) -> Statistics:
    """From means of features over networks."""
    k, g, t = view.single, len(view.weights), view.at.U.shape[1]
    shape = means[..., 4 * g : 4 * g + t * (t + 1) // 2]
    u, squares, across, fourth = (means[..., a * g : (a + 1) * g] for a in range(4))
    total = u[..., k:].mean(axis=-1)
    kurtosis, within = fourth / (3 * u**2) - 1, fourth / (3 * across) - 1
    return Statistics(
        size=np.log(total),
        shape=shape / total[..., None],
        spread=(across / u**2 - 1) @ view.weights,
        within=_both(within, k),
        evenness=(squares / u**2 - 1)[..., :k].mean(axis=-1) * view.coordinates / 2,
        kurtosis=np.stack([kurtosis[..., :k].mean(axis=-1), kurtosis[..., k:].mean(axis=-1)], axis=-1),
        pairing=np.zeros_like(total) if view.own is None else means[..., -1] / total,
    )


def _both(x: np.ndarray, k: int) -> np.ndarray:
    """The mean over single tokens and the mean over whitened directions, averaged."""
    return (x[..., :k].mean(axis=-1) + x[..., k:].mean(axis=-1)) / 2


def spread_of_directions(means: Float[np.ndarray, " f"], directions: int) -> Float[np.ndarray, " g"]:
    """Spread of every direction by itself."""
    u, across = means[:directions], means[2 * directions : 3 * directions]
    return across / u**2 - 1


def replicates(
    pool: Float[np.ndarray, "N f"], networks: int, number: int, rng: np.random.Generator, kernels: int = 1
) -> Float[np.ndarray, "number f"]:
    """Means over data sets of so many networks, each drawn from a pool of simulated networks.

    Where kernels are taken in turn, network m of a data set is one that was simulated with kernel m.
    """
    few = max(1, AT_ONCE // networks)
    sums = []
    for first in range(0, number, few):
        chosen = rng.integers(0, len(pool) // kernels, (min(few, number - first), networks))
        chosen = kernels * chosen + np.arange(networks) % kernels
        sums.append(pool[chosen].mean(axis=1) if networks < 64 else _means(pool, chosen))
    means = np.concatenate(sums)
    return means if kernels == 1 else _widened(means, pool, networks, kernels)


def _widened(means: np.ndarray, pool: np.ndarray, networks: int, kernels: int) -> np.ndarray:
    """Means of n networks simulated for each kernel, as far from their centre as those of new networks would be.

    Drawing n again from themselves loses 1 / n of their variance, and their own mean is uncertain by as much.
    """
    n = len(pool) // kernels
    centre = pool.reshape(n, kernels, -1).mean(axis=0)[np.arange(networks) % kernels].mean(axis=0)
    return centre + np.sqrt((n + 1) / (n - 1)) * (means - centre)


def _means(pool: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Means of chosen rows, without making all of them at once."""
    return np.array([pool[rows].mean(axis=0) for rows in chosen])
