"""Directions over tokens in which a network's outputs say much about its scores, and those in which they say little.

What a network's S / n is, its Sigma nearly is. Where an eigenvalue of Sigma is tiny scores are held to a thin shell around
those with u' A = 0, u its eigenvector. All here depends on the data alone and not on where a chain is.
"""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hierattn.inference.latent.waves import Waves
from hierattn.inference.likelihood import Data

SINGULAR, SHARE = 1e-3, 0.01  # ratio of Sigma's eigenvalues, and share of networks beyond it, from which lines are worth it
MOST, ROOM = 96, 2**21  # lines to choose from; numbers that they take
DIGITS = 1e-5  # ratio of its eigenvalues from which single precision suffices for forces
ROWS = 3  # that a line changes at most
ROUNDING = 1e-12  # of the mean eigenvalue, added to all
DEFINITE = 1e-9  # smallest eigenvalue of a kernel, relative to its largest, with which scores can be solved for


class Lines(NamedTuple):
    """Where attention weights may be moved to and fro: rows and their changes w, and what solves for E of p = q L_q E L_k'.

    - precision: (L_q L_q')^{-1}
    - depth: by how much less than the largest of its row a score is when outputs hardly notice its weight
    """

    rows: Int[Array, "line row"]
    w: Float[Array, "line row network"]
    L_q_inverse: Float[Array, "q q network"]
    L_k_inverse: Float[Array, "r k network_or_1"]
    precision: Float[Array, "q q network_or_1"]
    depth: Float[Array, " network"]


def estimated(data: Data) -> Float[np.ndarray, "network t t"]:
    """S / n of every network; with too few coordinates for an inverse, together with what all networks have in common."""
    S, n = np.moveaxis(np.asarray(data.S), -1, 0), float(data.n)
    t, others = S.shape[-1], max(0.0, 2 * S.shape[-1] - n)
    C = (S + others * S.mean(axis=0) / n) / (n + others)
    return C + ROUNDING * np.einsum("mii->m", C)[:, None, None] / t * np.eye(t)


def nearly_singular(data: Data) -> bool:
    """Is Sigma, in enough networks to matter?"""
    values = np.linalg.eigvalsh(estimated(data))
    return bool(np.mean(values[:, 0] < SINGULAR * values[:, -1]) >= SHARE)


def well_conditioned(data: Data) -> bool:
    """Is Sigma known to enough digits in single precision, for every network?"""
    values = np.linalg.eigvalsh(estimated(data))
    return bool(np.all(values[:, 0] > DIGITS * values[:, -1]))


def framed(data: Data) -> Data:
    """The same data with the rows of E turned, network by network, so that each row is known well or badly as a whole.

    E V' is as standard normal as E. V has the eigenvectors of L_q' C^{-1} L_q, C an estimate of Sigma: along the last of
    them the trajectories' steps are small, and need not be so along the others. With `Waves` there are no such rows.
    """
    if isinstance(data.made, Waves):
        return data
    L_q = np.moveaxis(np.asarray(data.L_q), -1, 0)
    rows = L_q if data.U is None else np.asarray(data.U).T @ L_q
    _, V = np.linalg.eigh(rows.swapaxes(1, 2) @ np.linalg.solve(estimated(data), rows))
    return replace(data, L_q=jnp.asarray(np.moveaxis(L_q @ V, 0, -1)))


def lines_of(data: Data, seed: int = 0) -> Lines | None:
    """Lines along which weights can go far, because Sigma changes little there; None where they are not needed or not known.

    They are needed where Sigma is nearly singular, and known where E can be solved for from weights.

    A line changes few rows of A, those of tokens T, by multiples of w. Likelihoods bend with w' C^{-1} w: half of the lines
    have the flattest w on T, half a random one from N(0, ((C^{-1})_TT)^{-1}), which takes in all scales of Sigma.
    """
    L_q, L_k = (np.moveaxis(np.asarray(L), -1, 0) for L in (data.L_q, data.L_k))
    t, keys, networks = L_q.shape[1], L_k.shape[1], data.S.shape[-1]
    each = data.K.shape[-1] > 1
    kernel = (L_q @ L_q.swapaxes(1, 2))[: None if each else 1]  # frames turn L_q only
    solvable = L_q.shape[2] == t and L_k.shape[2] == keys - 1 and _definite(L_q) and _definite(L_k)
    if (
        data.made is not None
        or data.unknown is not None
        or data.weighing.integrals is None  # no plain softmax
        or data.U is not None
        or keys < 2
        or not solvable
    ):
        return None
    if not nearly_singular(data):
        return None
    C = estimated(data)
    precision, rng = np.linalg.inv(C), np.random.default_rng(seed)
    number = int(np.clip(ROOM // (ROWS * networks), 2, MOST))
    rows = np.stack([rng.permutation(t)[:ROWS] for _ in range(number)])
    w = np.zeros((*rows.shape, networks))
    for b, tokens in enumerate(rows):
        some = tokens[: 1 + b % len(tokens)]  # one, two or three
        values, vectors = np.linalg.eigh(precision[:, some[:, None], some])
        z = rng.normal(size=(networks, len(some))) / np.sqrt(values)
        w[b, : len(some)] = (vectors[..., 0] if rng.random() < 0.5 else np.einsum("mij,mj->mi", vectors, z)).T
    inverses = (np.linalg.inv(L_q), np.linalg.pinv(L_k), np.linalg.inv(kernel))
    values = np.linalg.eigvalsh(C)
    depth = np.log(float(data.n) * values[:, -1] / values[:, 0]) / 2
    L_q_inverse, L_k_inverse, of_rows = (jnp.asarray(np.moveaxis(x, 0, -1)) for x in inverses)
    return Lines(jnp.asarray(rows), jnp.asarray(w), L_q_inverse, L_k_inverse, of_rows, jnp.asarray(depth))


def _definite(L: Float[np.ndarray, "network t r"]) -> bool:
    """Have all factors full rank, by more than rounding?"""
    values = np.linalg.svd(L, compute_uv=False)
    return bool(np.all(values[:, -1] ** 2 > DEFINITE * values[:, 0] ** 2))
