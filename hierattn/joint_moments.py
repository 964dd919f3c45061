"""Mean and covariance of Sigma over tokens, hence all second and fourth moments of the outputs, with errors, by RQMC.

Heads are independent but for those that share keys and values at finite head_dim: one group of heads is integrated at a time.
The values' Wishart matrix is integrated out by hand: given the attention of a group, Sigma = sum_a M_aa has covariance
n_H^{-1} sum_ab (M_ab,ik M_ab,jl + M_ab,il M_ab,jk) with M_ab = o_a o_b A_a K A_b' (THEORY section 6, for all tokens at once).
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from hierattn import rqmc
from hierattn.architecture import SCALE_NAMES
from hierattn.errors import unusable
from hierattn.law import Law

BATCH = 2**rqmc.FIRST  # points evaluated at once: one compilation


class JointMoments(NamedTuple):
    """Mean (i, j) and covariance (i, j, k, l) of Sigma_ij and Sigma_kl.

    E[y_i y_j] = E[Sigma_ij]; for two coordinates of a network E[y_i y_j y'_k y'_l] = E[Sigma_ij Sigma_kl]; for one, the sum
    over the three pairings of i, j, k, l.
    """

    mean: np.ndarray
    mean_error: np.ndarray
    covariance: np.ndarray
    covariance_error: np.ndarray


def of_tokens(law: Law, seed: int = 0, tokens: list[int] | None = None) -> JointMoments:
    """Mean and covariance of Sigma over all tokens, or over some, by RQMC over the scores of one group of heads at a time."""
    layer, s_q = law.layer, law.shape[0]
    tokens = list(range(s_q)) if tokens is None else tokens
    if len(tokens) ** 4 > 2**24:
        raise unusable("tokens", "at most 64 tokens for joint moments", len(tokens), "ask for some of them")
    size = 1 if layer.head_dim is None else layer.group_size
    groups = [_group(law, a, size) for a in range(0, layer.heads, size)]
    kinds = {kind: _of_group(groups[kind], tokens, seed) for kind in set(_kinds(groups))}
    parts = [kinds[kind] for kind in _kinds(groups)]
    mean, mean_error, covariance, covariance_error = (np.sum(x, axis=0) for x in zip(*parts, strict=True))
    share = size / layer.heads
    return JointMoments(mean * share, mean_error * share, covariance * share**2, covariance_error * share**2)


def _group(law: Law, first: int, size: int) -> Law:
    """The law of `size` heads alone."""
    layer, heads = law.layer, slice(first, first + size)
    bias = layer.bias if layer.bias is None or layer.bias.ndim == 2 else layer.bias[heads]
    scales = {name: getattr(layer, name) for name in SCALE_NAMES}
    scales = {name: scale[heads] if np.ndim(scale) else scale for name, scale in scales.items()}
    return Law.from_factors(layer.replace(heads=size, key_value_heads=1, bias=bias, **scales), law.L_k, law.L_q)


def _kinds(groups: list[Law]) -> list[int]:
    """For each group the first group that is the same."""
    marks = [b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(group.layer)) for group in groups]
    return [marks.index(mark) for mark in marks]


def _of_group(law: Law, tokens: list[int], seed: int) -> tuple[np.ndarray, ...]:
    """Mean and covariance of Sigma for the heads of `law`, which share keys and values, and their errors."""
    layer, r_q, r_k, t = law.layer, law.L_q.shape[-1], law.L_k.shape[-1], len(tokens)
    if layer.head_dim is None:
        shapes = [(layer.heads, *(() if layer.rotary is None else (2 * len(layer.rotary),)), r_q, r_k)]
    else:
        shapes = [(layer.heads, r_q, layer.head_dim), (1, r_k, layer.head_dim)]
    sizes = [math.prod(shape) for shape in shapes]

    def statistics(uniforms: np.ndarray) -> np.ndarray:
        parts = np.split(uniforms, np.cumsum(sizes)[:-1], axis=1)
        with jax.enable_x64(True):
            base = [ndtri(part).reshape(-1, BATCH, *shape) for part, shape in zip(parts, shapes, strict=True)]
            return np.mean([_group_statistics(law, tuple(tokens), *batch) for batch in zip(*base, strict=True)], axis=0)

    def summary(means: np.ndarray) -> tuple[np.ndarray, ...]:
        first, second = means[:, : t * t].reshape(-1, t, t), means[:, t * t :].reshape(-1, t, t, t, t)
        covariances = second - np.einsum("rij,rkl->rijkl", first, first)
        covariance = second.mean(axis=0) - np.multiply.outer(first.mean(axis=0), first.mean(axis=0))
        return first.mean(axis=0), rqmc.error(first), covariance, rqmc.error(covariances)

    def enough(means: np.ndarray) -> bool:
        E, E_error, V, V_error = summary(means)
        return bool(E_error.max() <= 1e-5 * np.abs(E).max() and V_error.max() <= 1e-3 * np.abs(V).max())

    with jax.enable_x64(True):
        around = np.asarray(law.linear_scaling())[np.ix_(tokens, tokens)]
    mean, *rest = summary(rqmc.expectations(statistics, sum(sizes), seed, enough))
    return around + mean, *rest


@partial(jax.jit, static_argnames=("tokens",))
def _group_statistics(law: Law, tokens: tuple[int, ...], E: jax.Array, B: jax.Array | None = None) -> jax.Array:
    """Averages over points of Sigma and of its products, values integrated out.

    Sigma is taken around its value at p = 0, so that small covariances do not drown in rounding.
    """
    layer = law.layer
    A = layer.attention(law.scores_from(E, B))[..., jnp.array(tokens), :]
    scale = (layer.value_scale * layer.heads**-0.5)[:, None, None]
    M = jnp.einsum("naik,nbjk->nabij", scale * A @ law.K, scale * A)
    Sigma = jnp.einsum("naaij->nij", M) - law.linear_scaling()[jnp.ix_(jnp.array(tokens), jnp.array(tokens))]
    products = jnp.einsum("nij,nkl->ijkl", Sigma, Sigma)
    if layer.head_dim is not None:
        products += jnp.einsum("nabik,nabjl->ijkl", M, M) / layer.head_dim
        products += jnp.einsum("nabil,nabjk->ijkl", M, M) / layer.head_dim
    return jnp.concatenate([Sigma.mean(axis=0).ravel(), products.ravel() / len(M)])
