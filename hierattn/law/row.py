"""What one token sees: its keys, their kernel, the covariance of its scores, and which heads are alike.

    v = H^{-1} sum_a o_a^2 c'_a u_a,    u_a = w_a K w_a',    w_a the weights of scores N(0, q_a^2 c_a C)

with c_a, c'_a ~ chi2_{n_H} / n_H (1 at infinite head_dim): all that moments and marginals of a token need (THEORY section 4).
"""

from collections import Counter
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.base.tracing import tree_traced
from hierattn.law.hierarchy import Hierarchy
from hierattn.layer.architecture import Architecture
from hierattn.layer.checks import PER_HEAD
from hierattn.layer.weighing import Weighing


class Row(NamedTuple):
    """Covariance C of a token's scores at score scale 1, kernel K over its keys, how scores (head, key) become weights."""

    C: np.ndarray
    K: np.ndarray
    weighing: Weighing


class Head(NamedTuple):
    """What the law of one head depends on, and how many heads are like it."""

    q: Any
    o: Any
    weighing: Weighing
    number: int

    @property
    def setting(self) -> tuple:
        """All of it but the values' scale, hashable."""
        return float(self.q), *self.weighing.mark


def row_of(law: Hierarchy, token: int) -> Row:
    """What a token sees."""
    keys = seen_keys(law, token)
    factors = (*law.score_factors(), law.L_k)
    xp: Any = jnp if tree_traced(factors) else np
    S_q, S_k, L_k = (xp.asarray(L, float)[some] for L, some in zip(factors, (token, keys, keys), strict=True))
    C = S_q @ S_q * (S_k @ S_k.T)
    if law.layer.rotary is not None:
        C = C * np.cos(np.multiply.outer(np.subtract.outer(keys, keys), law.layer.rotary)).mean(axis=-1)
    return Row(C, L_k @ L_k.T, weighing_of(law, token, keys))


def seen_keys(law: Any, token: int) -> np.ndarray:
    """The keys a token may look at."""
    s_q, s_k = law.shape
    if not isinstance(token, (int, np.integer)) or isinstance(token, bool) or not 0 <= token < s_q:
        raise unusable("token", f"a whole number from 0 to {s_q - 1}", repr(token))
    return np.flatnonzero(law.layer.allowed(s_q, s_k)[token])


def weighing_of(law: Any, token: int, keys: np.ndarray) -> Weighing:
    """How a token's scores (head, key) become weights."""
    return law.layer.weighing(*law.shape).of_token(token, keys, law.layer.heads)


def coupled(layer: Architecture, K: np.ndarray | None = None) -> bool:
    """Have a row's scores more in common than one factor, or heads their values? (Random G: no K is given.)"""
    turned = layer.rotary is not None and (K is None or bool(np.any(np.diag(np.diagonal(K)) != K)))
    at_finite_head_dim = layer.group_size > 1 or turned or layer.qk_norm is not None
    return layer.sink_scale is not None or (layer.head_dim is not None and at_finite_head_dim)


def heads_of(layer: Architecture, row: Row) -> list[Head]:
    """All heads, those that are alike together; abstract scales are alike if there is one for all heads."""
    q, o = layer.score_scale * layer.score_factor, layer.value_scale
    scalars = all(np.ndim(getattr(layer, name)) == 0 for name in PER_HEAD)
    if scalars and np.ndim(layer.bias) < 3:
        return [Head(q[0], o[0], row.weighing.of_head(0), layer.heads)]
    heads = [Head(q[a], o[a], row.weighing.of_head(a), 1) for a in range(layer.heads)]
    if tree_traced((q, o, row.weighing)):
        return heads
    counts = Counter((*head.setting, float(head.o)) for head in heads)
    first = {(*head.setting, float(head.o)): head for head in reversed(heads)}
    return [first[kind]._replace(number=count) for kind, count in sorted(counts.items())]


def centred(C: Any) -> Any:
    """The covariance of scores less their mean over keys."""
    return C - C.mean(axis=0) - C.mean(axis=1)[:, None] + C.mean()


def root(C: Any, weighing: Weighing) -> Any:
    """R with R R' = C, widest axis first; its rows are centred where a row's mean changes nothing."""
    m = len(C)
    if tree_traced(C):
        contrasts = np.linalg.svd(np.eye(m) - 1 / m)[0][:, : m - 1] if weighing.shift_invariant else np.eye(m)
        return contrasts @ jnp.linalg.cholesky(contrasts.T @ C @ contrasts)
    values, vectors = np.linalg.eigh(centred(C) if weighing.shift_invariant else C)
    keep = values > 1e-14 * max(values.max(), 1e-300)
    return (vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1]


def diagonal_and_rest(M: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """M = diag(d) + c with c the mean off the diagonal: d, c, and whether that is all of M."""
    c = (M.sum() - M.trace()) / (M.size - len(M))
    d = M.diagonal() - c
    return d, c, bool(np.abs(M - np.diag(d) - c).max() <= 1e-13 * np.abs(M).max())
