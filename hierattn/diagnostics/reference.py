"""What the law, and rivals without its hierarchy, lead one to expect of a set of networks: pools of simulated networks.

law        networks of the law, and of the law with score_scale a little smaller and larger (the same random numbers)
gaussian   networks that do not differ: the same covariance over tokens for all
own        coordinates with scores of their own: the law's, each coordinate from another network
"""

from typing import NamedTuple

import jax
import numpy as np

from hierattn.diagnostics import statistics
from hierattn.diagnostics.statistics import View
from hierattn.inference.methods.moment_table import Directions, directions
from hierattn.law.law import Law
from hierattn.layer import kernels

POOL, LEAST, MANY = 2**12, 2**10, 16  # networks simulated: if there is room, at least, and for one observed
OUTPUTS, SCORES = 2**24, 2**23  # numbers they are made of, at most
STEP = 0.1  # of log score_scale, for derivatives
MOST_DIRECTIONS = 12  # of largest change with score_scale


class Reference(NamedTuple):
    """Features of simulated networks, as they are seen in a view."""

    view: View
    law: np.ndarray
    lower: np.ndarray
    higher: np.ndarray
    gaussian: np.ndarray
    own: np.ndarray


def pool_size(law: Law, networks: int, coordinates: int) -> int:
    """Networks to simulate: many more than were observed, as far as there is room."""
    s_q, s_k = law.shape
    room = max(LEAST, min(OUTPUTS // (s_q * coordinates), SCORES // (law.layer.heads * s_q * s_k)))
    return int(np.clip(MANY * networks, min(POOL, room), room))


def simulate(law: Law, coordinates: int, networks: int, seed: int) -> Reference:
    """Pools for a law, and the view in which its networks differ most."""
    q = float(np.exp(STEP))
    laws = [with_score_scale(law, 1 / q), law, with_score_scale(law, q)]
    lower, y, higher = (draw(each, networks, coordinates, seed) for each in laws)
    rng = np.random.default_rng(seed)
    Sigma = np.stack([np.einsum("nic,njc->ij", x, x, optimize=True) for x in (lower, y, higher)]) / (networks * coordinates)
    view = look(Sigma, y, coordinates)
    root = kernels.factor(Sigma[1])
    gaussian = root @ rng.standard_normal((networks, root.shape[1], coordinates))
    own = np.stack([y[rng.permutation(networks), :, c] for c in range(coordinates)], axis=-1)
    return Reference(view, *(statistics.features(x, view) for x in (y, lower, higher, gaussian, own)))


def draw(law: Law, networks: int, coordinates: int, seed: int) -> np.ndarray:
    """Outputs (network, token, coordinate) of networks of the law; of many kernels each is taken in turn."""
    key = jax.random.key(seed)
    if law.L_k.ndim == 2:
        Sigma = np.asarray(law.sample_Sigma(key, networks), float)
    else:
        turn = np.arange(networks) % len(law.L_k)
        law = Law.from_factors(law.layer, law.L_k[turn], law.L_q[turn])
        key_p, key_D = jax.random.split(key)
        F = law.factor(law.scores_from(*law.sample_base(key_p, networks)), law.sample_values(key_D, networks))
        Sigma = np.asarray(F @ F.mT, float)
    values, vectors = np.linalg.eigh(Sigma)
    root = (vectors * np.sqrt(values.clip(0))[:, None]) @ vectors.swapaxes(-1, -2)  # symmetric: it moves little with the law
    return root @ np.random.default_rng(seed).standard_normal((networks, Sigma.shape[-1], coordinates))


def with_score_scale(law: Law, factor: float) -> Law:
    """The law with its score_scale times a factor."""
    return Law.from_factors(law.layer.replace(sigma_q=law.layer.sigma_q * factor), law.L_k, law.L_q)


def look(Sigma: np.ndarray, y: np.ndarray, coordinates: int) -> View:
    """The view for E[Sigma] at three score scales: spread is weighted by what the law says of it."""
    at = directions(Sigma, np.log([np.exp(-STEP), 1.0, np.exp(STEP)]), 1)
    order = np.sort(np.argsort(-np.abs(at.lam))[:MOST_DIRECTIONS])
    at = Directions(at.U[:, order], at.lam[order])
    scales = np.sqrt(np.diagonal(Sigma[1]).clip(0))
    scales = np.where(scales > 1e-9 * scales.max(), scales, 0)
    g = int(np.sum(scales > 0)) + len(order)
    view = View(at, scales, np.full(g, 1 / g), coordinates)
    weights = statistics.spread_of_directions(statistics.features(y, view).mean(axis=0), g).clip(0)
    return view._replace(weights=weights / weights.sum() if weights.sum() > 0 else view.weights)
