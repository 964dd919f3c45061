"""What the law, and its rivals, lead one to expect of a set of networks: pools of simulated networks.

law           networks of the law
lower, higher the same with score_scale a little smaller and larger (the same random numbers)
rivals        networks that have a departure (`Departure.rival`), by name

Where every observed network has a kernel of its own, simulated networks take these kernels in turn.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from hierattn.diagnostics import statistics
from hierattn.diagnostics.departures.protocol import Simulated
from hierattn.diagnostics.departures.registry import RIVALS
from hierattn.diagnostics.statistics import View
from hierattn.inference.methods.moment_table import Directions, directions
from hierattn.law.law import Law

POOL, LEAST, MANY = 2**12, 2**10, 16  # networks simulated: if there is room, at least, and for one observed
OUTPUTS, SCORES = 2**24, 2**23  # numbers they are made of, at most
STEP = 0.1  # of log score_scale, for derivatives
MOST_DIRECTIONS = 12  # of largest change with score_scale
GIVEN = 2**15  # networks simulated for what kernels predict, if there is room
DIFFERENT = 0.05  # of their size, by which kernels' predictions differ if it matters who has which
SINGULAR = 1e-9  # share of the largest eigenvalue below which a covariance has none


class Reference(NamedTuple):
    """Features of simulated networks, as they are seen in a view."""

    view: View
    law: np.ndarray
    lower: np.ndarray
    higher: np.ndarray
    rivals: dict[str, np.ndarray]

    def among(self, name: str) -> np.ndarray:
        """The pool of the law, or of a rival."""
        return self.law if name == "law" else self.rivals[name]


def pool_size(law: Law, networks: int, coordinates: int) -> int:
    """Networks to simulate: many more than were observed, as far as there is room."""
    s_q, s_k = law.shape
    room = max(LEAST, min(OUTPUTS // (s_q * coordinates), SCORES // (law.layer.heads * s_q * s_k)))
    return int(np.clip(MANY * networks, min(POOL, room), room))


def simulate(law: Law, coordinates: int, networks: int, seed: int) -> Reference:
    """Pools for a law, and the view in which its networks differ most."""
    k = kernels_of(law)
    networks = networks if k == 1 else k * max(2, networks // k)
    q = float(np.exp(STEP))
    laws = [with_score_scale(law, 1 / q), law, with_score_scale(law, q)]
    lower, y, higher = (draw(each, networks, coordinates, seed) for each in laws)
    Sigma = np.stack([np.einsum("nic,njc->ij", x, x, optimize=True) for x in (lower, y, higher)]) / (networks * coordinates)
    view, each = look(Sigma, y, coordinates)._replace(kernels=k), Sigma[1:2]
    if k > 1:
        halves = given_kernels(law, seed)
        view, each = view._replace(own=what_kernels_add(*halves)), np.mean(halves, axis=0)
    rng, drawn = np.random.default_rng(seed), Simulated(y, each, view)
    rivals = {name: rival.outputs(drawn, rng) for name, rival in RIVALS.items() if rival.outputs}
    pools = {name: statistics.features(x, view) for name, x in rivals.items() if x is not None}
    of_law = [statistics.features(x, view) for x in (y, lower, higher)]
    return Reference(view, of_law[0], of_law[1], of_law[2], pools)


def kernels_of(law: Law) -> int:
    """How many kernels the law has: one for all networks, or one for each."""
    return 1 if law.L_k.ndim == 2 else len(law.L_k)


def of_first(law: Law, networks: int) -> Law:
    """The law of the first networks, where each has a kernel."""
    return law if law.L_k.ndim == 2 else Law.from_factors(law.layer, law.L_k[:networks], law.L_q[:networks])


def in_turn(law: Law, networks: int) -> Law:
    """The law of so many networks that take its kernels in turn."""
    turn = np.arange(networks) % len(law.L_k)
    return Law.from_factors(law.layer, law.L_k[turn], law.L_q[turn])


def draw(law: Law, networks: int, coordinates: int, seed: int) -> np.ndarray:
    """Outputs (network, token, coordinate) of networks of the law; of many kernels each is taken in turn."""
    Sigma = covariances(law, networks, seed)
    values, vectors = np.linalg.eigh(Sigma)
    root = (vectors * np.sqrt(values.clip(0))[:, None]) @ vectors.swapaxes(-1, -2)  # symmetric: it moves little with the law
    return root @ np.random.default_rng(seed).standard_normal((networks, Sigma.shape[-1], coordinates))


def covariances(law: Law, networks: int, seed: int) -> Float[np.ndarray, "network s s"]:
    """Sigma of networks of the law."""
    key = jax.random.key(seed)
    if law.L_k.ndim == 2:
        return np.asarray(law.sample_Sigma(key, networks), float)
    law, (key_p, key_D) = in_turn(law, networks), jax.random.split(key)
    F = law.factor(law.scores_from(*law.sample_base(key_p, networks)), law.sample_values(key_D, networks))
    return np.asarray(F @ F.mT, float)


def given_kernels(law: Law, seed: int) -> list[Float[np.ndarray, "k s s"]]:
    """E[Sigma | K] for each kernel, twice, from networks of their own: what both have in common is no noise."""
    k, (s_q, s_k) = kernels_of(law), law.shape
    number = max(2, min(GIVEN, SCORES // (law.layer.heads * s_q * s_k)) // (2 * k))
    halves = []
    for key in jax.random.split(jax.random.key(seed + 4)):
        networks = in_turn(law, k * number)
        Sigma = networks.expected_Sigma(networks.scores_from(*networks.sample_base(key, k * number)))
        halves.append(np.asarray(Sigma, float).reshape(number, k, s_q, s_q).mean(axis=0))
    return halves


def what_kernels_add(first: np.ndarray, second: np.ndarray) -> Float[np.ndarray, "k s s"] | None:
    """Q_k with E[mean over k of tr(Sigma_k Q_k)] = 1, if every network has its own kernel; None if all predict much the same.

    D_k is what E[Sigma | K_k] has more than the mean over kernels, whitened by W: Q_k = W' D_k W / mean of tr(D_k^2).
    """
    mean = (first + second).mean(axis=0) / 2
    values, vectors = np.linalg.eigh(mean)
    keep = values > SINGULAR * values.max()
    W = (vectors[:, keep] / np.sqrt(values[keep])).T
    D = [W @ (half - half.mean(axis=0)) @ W.T for half in (first, second)]
    signal = float(np.mean(np.sum(D[0] * D[1], axis=(1, 2))))
    if signal < DIFFERENT**2 * len(W):
        return None
    return W.T @ (sum(D) / 2 / signal) @ W


def with_score_scale(law: Law, factor: float) -> Law:
    """The law with its score_scale times a factor."""
    return Law.from_factors(law.layer.with_scores_times(factor), law.L_k, law.L_q)


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
