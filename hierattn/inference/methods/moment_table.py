"""First and second moments of S = Y Y' in a few directions, as functions of score_scale, by fixed quasi-random scores.

    f_1 = tr S~,    f_2 = sum_i lambda_i S~_ii,    S~ = U' S U

and with Sigma~ = U' Sigma U, g_a = sum_i lambda^a_i Sigma~_ii, T_ab = sum_ij lambda^a_i lambda^b_j Sigma~_ij^2 (lambda^1 = 1):

    E[f_a] = n E[g_a],    E[f_a f_b] = n^2 E[g_a g_b] + 2 n E[T_ab],    E[sum_ij S~_ij^2] = n^2 E[T_11] + n E[g_1^2 + T_11]

(THEORY section 9). Sigma is a mean over independent heads, so that its second moments need those of one head alone; at finite
head_dim the values' Wishart matrix is integrated out by hand.
"""

import math
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.inference.latent.products import total
from hierattn.law.hierarchy import Base
from hierattn.law.joint_moments import of_normals
from hierattn.law.law import Law
from hierattn.layer.architecture import Architecture
from hierattn.numerics import rqmc

MOST_POINTS, MOST_NUMBERS = 2**15, 2**20  # sets of scores, and numbers they are made of
PILOT = 2**11  # sets of scores for a first guess
CHUNK = 2**9  # sets of scores at once: they stay in the cache
SINGULAR = 1e-12  # share of the largest eigenvalue below which a covariance has none


class Directions(NamedTuple):
    """Where S is looked at."""

    U: Float[np.ndarray, "t r"]
    lam: Float[np.ndarray, " r"]


class Averages(NamedTuple):
    """Of Sigma over networks, for value_scale 1: E[Sigma~] (q, r, r), E[g_a] (q, 2), E[g_a g_b] and E[T_ab] (q, 2, 2)."""

    Sigma: Any
    g: Any
    gg: Any
    T: Any


def features(S: Float[np.ndarray, "network t t"], at: Directions) -> Float[np.ndarray, "network 6"]:
    """f_1, f_2, f_1^2, f_1 f_2, f_2^2 and sum_ij S~_ij^2 of every network."""
    rotated = at.U.T @ S @ at.U
    diagonal = np.einsum("mii->mi", rotated)
    f_1, f_2 = diagonal.sum(axis=1), diagonal @ at.lam
    return np.stack([f_1, f_2, f_1**2, f_1 * f_2, f_2**2, np.sum(rotated**2, axis=(1, 2))], axis=1)


def expected_features(found: Averages, n: int) -> Float[np.ndarray, "q 6"]:
    """Their expectations."""
    products = n**2 * found.gg + 2 * n * found.T
    norm = n**2 * found.T[:, 0, 0] + n * (found.gg[:, 0, 0] + found.T[:, 0, 0])
    return np.column_stack([n * found.g, products[:, 0, 0], products[:, 0, 1], products[:, 1, 1], norm])


def directions(Sigma: Float[np.ndarray, "q t t"], log_q: Float[np.ndarray, " q"], guess: int) -> Directions:
    """From E[Sigma] over score scales: what a Gaussian would look at near the guessed one."""
    slope = np.gradient(Sigma, log_q, axis=0)[guess]
    values, vectors = np.linalg.eigh(Sigma[guess])
    keep = values > SINGULAR * values.max()
    W = vectors[:, keep] / np.sqrt(values[keep])
    lam, R = np.linalg.eigh(W.T @ slope @ W)
    lam = lam - lam.mean()
    return Directions(W @ R, lam / max(np.abs(lam).max(), 1e-9))


def averages(law: Law, q: Float[np.ndarray, " q"], at: Directions, most_points: int = MOST_POINTS) -> Averages:
    """Over networks of the law (scales 1), at score scales q. Heads with biases of their own are integrated one by one."""
    layer = law.layer
    if layer.head_dim is not None and layer.group_size > 1:
        raise unusable(
            "layer", "at finite head_dim, heads that share nothing", f"{layer.group_size} that share keys and values"
        )
    each = [layer.some_heads(a, 1) for a in range(layer.heads)]
    marks = [b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(head)) for head in each]
    unlike, counts = dict(zip(marks, each, strict=True)), Counter(marks)
    with jax.enable_x64(True):
        numbers = (jnp.asarray(x, float) for x in (law.K, at.U, at.lam, q))
        arrays, p = tuple(numbers), _scores(law, most_points)
        kinds = [Averages(*(np.asarray(x) for x in _one_head(head, p, *arrays))) for head in unlike.values()]
    lam = np.stack([np.ones(len(at.lam)), at.lam])
    share = np.array([counts[mark] for mark in unlike]) / layer.heads
    Sigma, g = (sum(c * getattr(kind, name) for c, kind in zip(share, kinds, strict=True)) for name in ("Sigma", "g"))
    spread_g = sum(c / layer.heads * (kind.gg - _outer(kind.g)) for c, kind in zip(share, kinds, strict=True))
    spread_T = sum(c / layer.heads * (kind.T - _traces(kind.Sigma, lam)) for c, kind in zip(share, kinds, strict=True))
    return Averages(Sigma, g, _outer(g) + spread_g, _traces(Sigma, lam) + spread_T)


def _outer(g: np.ndarray) -> np.ndarray:
    return g[:, :, None] * g[:, None]


def _traces(Sigma: np.ndarray, lam: np.ndarray) -> np.ndarray:
    return np.einsum("ai,bj,qij->qab", lam, lam, Sigma**2)


def _scores(law: Law, most_points: int) -> Float[Array, "N 1 t k"]:
    """Scores of one head for score_scale 1."""
    one = Law.from_factors(law.layer.some_heads(0, 1), law.L_k, law.L_q)
    shapes = one.base_shapes()
    sizes = [0 if shape is None else math.prod(shape) for shape in shapes]
    points = 2 ** int(np.log2(np.clip(MOST_NUMBERS / max(sum(sizes), math.prod(law.shape)), 2, most_points)))
    parts = np.split(rqmc.normal_points((sum(sizes),), points), np.cumsum(sizes)[:-1], axis=1)
    z = Base(*(None if shape is None else part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)))
    return one.scores_from(*jax.tree.map(jnp.asarray, of_normals(one, z)))


@jax.jit
def _one_head(layer: Architecture, p: Array, K: Array, U: Array, lam: Array, q: Array) -> Averages:
    n_H, weights = layer.head_dim, jnp.stack([jnp.ones_like(lam), lam])

    def part(q: Array, p: Array) -> Averages:
        A = jnp.moveaxis(layer.attention(q * p)[:, 0], 0, -1)  # networks last: no small matrices
        rows = jnp.einsum("ti,tkn->ikn", U, A)
        rows_K = jnp.einsum("ikn,kl->iln", rows, K)
        Sigma = total(lambda k: rows_K[:, None, k] * rows[None, :, k], rows.shape[1])
        g = weights @ jnp.einsum("iin->in", Sigma)
        gg, T = (g @ g.T) / g.shape[1], jnp.einsum("ai,bj,ij->ab", weights, weights, jnp.mean(Sigma**2, axis=-1))
        if n_H is not None:
            gg, T = gg + 2 * T / n_H, T * (1 + 1 / n_H) + gg / n_H
        return Averages(jnp.mean(Sigma, axis=-1), jnp.mean(g, axis=1), gg, T)

    parts = p.reshape(-1, min(CHUNK, len(p)), *p.shape[1:])
    each = jax.lax.map(lambda q: jax.lax.map(lambda p: part(q, p), parts), q)
    return Averages(*(jnp.mean(x, axis=1) for x in each))
