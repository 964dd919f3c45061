"""What one token sees: its keys, their kernel, the covariance of its scores, and which heads are alike.

    v = H^{-1} sum_a o_a^2 c'_a u_a,    u_a = w_a K w_a',    w_a the weights of scores N(b_a, q_a^2 c_a C)

with c_a, c'_a ~ chi2_{n_H} / n_H (1 at infinite head_dim): all that moments and marginals of a token need (THEORY section 4).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.base.tracing import tree_traced
from hierattn.law.hierarchy import Hierarchy
from hierattn.layer.architecture import SCALE_NAMES, Architecture
from hierattn.layer.scores import ScoreFunction


class Row(NamedTuple):
    """Covariance C of a token's scores at score scale 1, kernel K over its keys, one row of what is added for each head."""

    C: np.ndarray
    K: np.ndarray
    bias: np.ndarray


class Head(NamedTuple):
    """What the law of one head depends on, and how many heads are like it."""

    q: Any
    o: Any
    bias: Any
    number: int


def row_of(law: Hierarchy, token: int) -> Row:
    """What a token sees."""
    keys = seen_keys(law, token)
    xp: Any = jnp if tree_traced((law.L_k, law.L_q)) else np
    L_k, L_q = xp.asarray(law.L_k, float)[keys], xp.asarray(law.L_q, float)[token]
    K = L_k @ L_k.T
    C = L_q @ L_q * K
    if law.layer.rotary is not None:
        C = C * np.cos(np.multiply.outer(np.subtract.outer(keys, keys), law.layer.rotary)).mean(axis=-1)
    return Row(C, K, added_row(law, token, keys))


def seen_keys(law: Any, token: int) -> np.ndarray:
    """The keys a token may look at."""
    s_q, s_k = law.shape
    if not isinstance(token, (int, np.integer)) or isinstance(token, bool) or not 0 <= token < s_q:
        raise unusable("token", f"a whole number from 0 to {s_q - 1}", repr(token))
    return np.flatnonzero(law.layer.allowed(s_q, s_k)[token])


def added_row(law: Any, token: int, keys: np.ndarray) -> np.ndarray:
    """What is added to a token's scores, one row for each head."""
    added = law.layer.added(*law.shape)
    return np.broadcast_to(0.0 if added is None else added, (law.layer.heads, *law.shape))[:, token, keys]


def coupled(layer: Architecture, K: np.ndarray | None = None) -> bool:
    """At finite head_dim: do heads share values, or a row's scores more than one chi-square? (Random G: no K is given.)"""
    turned = layer.rotary is not None and (K is None or bool(np.any(np.diag(np.diagonal(K)) != K)))
    return layer.head_dim is not None and (layer.group_size > 1 or turned)


def heads_of(layer: Architecture, row: Row) -> list[Head]:
    """All heads, those that are alike together; abstract scales are alike if there is one for all heads."""
    q, o = layer.score_scale * layer.score_factor, layer.value_scale
    scalars = all(np.ndim(getattr(layer, name)) == 0 for name in SCALE_NAMES)
    if scalars and np.all(row.bias == row.bias[0]):
        return [Head(q[0], o[0], row.bias[0], layer.heads)]
    if tree_traced((q, o)):
        return [Head(q[a], o[a], row.bias[a], 1) for a in range(layer.heads)]
    kinds, counts = np.unique(np.column_stack([q, o, row.bias]), axis=0, return_counts=True)
    return [Head(k[0], k[1], k[2:], int(c)) for k, c in zip(kinds, counts, strict=True)]


def centred(C: Any) -> Any:
    """The covariance of scores less their mean over keys."""
    return C - C.mean(axis=0) - C.mean(axis=1)[:, None] + C.mean()


def root(C: Any, scores: ScoreFunction) -> Any:
    """R with R R' = C, widest axis first; its rows are centred where a row's mean changes nothing."""
    m = len(C)
    if tree_traced(C):
        contrasts = np.linalg.svd(np.eye(m) - 1 / m)[0][:, : m - 1] if scores.shift_invariant else np.eye(m)
        return contrasts @ jnp.linalg.cholesky(contrasts.T @ C @ contrasts)
    values, vectors = np.linalg.eigh(centred(C) if scores.shift_invariant else C)
    keep = values > 1e-14 * max(values.max(), 1e-300)
    return (vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1]


def diagonal_and_rest(M: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """M = diag(d) + c with c the mean off the diagonal: d, c, and whether that is all of M."""
    c = (M.sum() - M.trace()) / (M.size - len(M))
    d = M.diagonal() - c
    return d, c, bool(np.abs(M - np.diag(d) - c).max() <= 1e-13 * np.abs(M).max())
