"""Mean and covariance of Sigma over tokens, hence all second and fourth moments of the outputs, with errors, by RQMC.

Heads are independent but for those that share keys and values at finite head_dim: one group of heads is integrated at a time.
The values' Wishart matrix is integrated out by hand: given the attention of a group, Sigma = sum_a M_aa has covariance
n_H^{-1} sum_ab (M_ab,ik M_ab,jl + M_ab,il M_ab,jk) with M_ab = o_a o_b A_a K A_b' (THEORY section 6, for all tokens at once).
"""

import math
from collections import Counter
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from hierattn.base.errors import unusable
from hierattn.law.hierarchy import Base, Hierarchy
from hierattn.layer import kernels
from hierattn.numerics import chi_square, rqmc

BATCH = 2**rqmc.FIRST  # points evaluated at once: one compilation
MOST_TOKENS = 32  # of joint moments: their covariance has the fourth power of it as entries
ENOUGH_MEAN, ENOUGH_COVARIANCE = 1e-5, 1e-3  # errors, relative to the largest entry, at which RQMC stops


class JointMoments(NamedTuple):
    """Mean (i, j) and covariance (i, j, k, l) of Sigma_ij and Sigma_kl.

    E[y_i y_j] = E[Sigma_ij]; for two coordinates of a network E[y_i y_j y'_k y'_l] = E[Sigma_ij Sigma_kl]; for one, the sum
    over the three pairings of i, j, k, l.
    """

    mean: np.ndarray
    mean_error: np.ndarray
    covariance: np.ndarray
    covariance_error: np.ndarray


def of_tokens(law: Hierarchy, tokens: list[int] | None = None, seed: int = 0) -> JointMoments:
    """Mean and covariance of Sigma over all tokens, or over some."""
    tokens = list(range(law.shape[0])) if tokens is None else tokens
    if any(not isinstance(i, (int, np.integer)) or not 0 <= i < law.shape[0] for i in tokens):
        raise unusable("tokens", f"whole numbers from 0 to {law.shape[0] - 1}", tokens)
    if len(tokens) > MOST_TOKENS:
        raise unusable("tokens", f"at most {MOST_TOKENS} tokens", len(tokens), "name some: joint_moments(tokens=[0, 1])")
    return JointMoments(*_over_groups(law, tokens, seed, covariance=True))


def mean_of_tokens(law: Hierarchy, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The mean of Sigma alone, which needs far less memory, and its error."""
    mean, mean_error, *_ = _over_groups(law, list(range(law.shape[0])), seed, covariance=False)
    return mean, mean_error


def _over_groups(law: Hierarchy, tokens: list[int], seed: int, covariance: bool) -> list[np.ndarray]:
    """Sum over independent groups of heads, those that are alike integrated once."""
    size = 1 if law.layer.head_dim is None else law.layer.group_size
    if law.layer.head_dim is not None and law.layer.qk_norm == "rms_all":
        size = law.layer.heads  # which have one length in common
    groups = [_group(law, a, size) for a in range(0, law.layer.heads, size)]
    marks = [b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(group.layer)) for group in groups]
    share = size / law.layer.heads
    total: list[np.ndarray] = [np.zeros(())] * 4
    for mark, count in Counter(marks).items():
        part = _of_group(groups[marks.index(mark)], tokens, seed, covariance)
        factors = (share, share, share**2, share**2)
        total = [x + count * factor * y for x, y, factor in zip(total, part, factors, strict=True)]
    return total


def _group(law: Hierarchy, first: int, size: int) -> Hierarchy:
    """The law of `size` heads alone."""
    return Hierarchy.from_factors(law.layer.some_heads(first, size), law.L_k, law.L_q)


def _only(law: Hierarchy, tokens: list[int]) -> tuple[Hierarchy, list[int]]:
    """The law of some queries alone, which needs fewer random numbers, unless every position is needed."""
    if law.layer.positional or len(tokens) == law.shape[0]:
        return law, tokens
    L_q = np.asarray(law.L_q, float)[tokens]
    layer = law.layer.of_queries(tokens, *law.shape)
    return Hierarchy.from_factors(layer, law.L_k, kernels.factor(L_q @ L_q.T)), list(range(len(tokens)))


def _of_group(law: Hierarchy, tokens: list[int], seed: int, covariance: bool) -> tuple[np.ndarray, ...]:
    """Mean and covariance of Sigma for the heads of `law`, which share keys and values, and their errors."""
    law, tokens = _only(law, tokens)
    shapes, t = law.base_shapes(), len(tokens)
    sizes = [0 if shape is None else math.prod(shape) for shape in shapes]
    with jax.enable_x64(True):
        around = np.asarray(law.linear_scaling())[np.ix_(tokens, tokens)]

    def statistics(uniforms: np.ndarray) -> np.ndarray:
        parts = np.split(uniforms, np.cumsum(sizes)[:-1], axis=1)
        z = (None if shape is None else ndtri(part).reshape(-1, *shape) for shape, part in zip(shapes, parts, strict=True))
        base = of_normals(law, Base(*z))
        batches = [jax.tree.map(lambda x: x[i : i + BATCH], base) for i in range(0, len(uniforms), BATCH)]  # noqa: B023
        with jax.enable_x64(True):
            return np.mean([_group_statistics(law, tuple(tokens), covariance, batch) for batch in batches], axis=0)

    def summary(means: np.ndarray) -> tuple[np.ndarray, ...]:
        first = means[:, : t * t].reshape(-1, t, t)
        mean, mean_error = around + first.mean(axis=0), rqmc.error(first)
        if not covariance:
            return mean, mean_error, np.zeros(()), np.zeros(())
        second = means[:, t * t :].reshape(-1, t, t, t, t)
        covariances = second - np.einsum("rij,rkl->rijkl", first, first)
        centre = second.mean(axis=0) - np.multiply.outer(first.mean(axis=0), first.mean(axis=0))
        return mean, mean_error, centre, rqmc.error(covariances)

    def enough(means: np.ndarray) -> bool:
        E, E_error, V, V_error = (np.abs(x).max() for x in summary(means))
        return bool(E_error <= ENOUGH_MEAN * E and V_error <= ENOUGH_COVARIANCE * V)

    return summary(rqmc.expectations(statistics, sum(sizes), seed, enough))


@partial(jax.jit, static_argnames=("tokens", "covariance"))
def _group_statistics(law: Hierarchy, tokens: tuple[int, ...], covariance: bool, base: Base) -> jax.Array:
    """Averages over points of Sigma and of its products (if asked for), values integrated out.

    Sigma is taken around its value at p = 0, so that small covariances do not drown in rounding.
    """
    layer = law.layer
    A = layer.attention(law.scores_from(*base))[..., jnp.array(tokens), :]
    scale = (layer.value_scale * layer.heads**-0.5)[:, None, None]
    M = jnp.einsum("naik,nbjk->nabij", scale * A @ law.K, scale * A)
    if layer.groups > 1:  # of heads that share values
        M *= np.kron(np.eye(layer.groups), np.ones((layer.group_size, layer.group_size)))[:, :, None, None]
    Sigma = jnp.einsum("naaij->nij", M) - law.linear_scaling()[jnp.ix_(jnp.array(tokens), jnp.array(tokens))]
    if not covariance:
        return Sigma.mean(axis=0).ravel()
    products = jnp.einsum("nij,nkl->ijkl", Sigma, Sigma)
    if layer.head_dim is not None:
        products += jnp.einsum("nabik,nabjl->ijkl", M, M) / layer.head_dim
        products += jnp.einsum("nabil,nabjk->ijkl", M, M) / layer.head_dim
    return jnp.concatenate([Sigma.mean(axis=0).ravel(), products.ravel() / len(M)])


def of_normals(law: Hierarchy, z: Base) -> Base:
    """Standard variables of a law's scores made of standard normals alone, in the shapes of these."""
    if z.B is None or law.layer.rotary is not None:
        return z
    B = chi_square.bartlett(z.B, law.freedom)
    return z._replace(B=B, R=None if z.R is None else chi_square.bartlett(z.R, law.freedom - B.shape[-1]))
