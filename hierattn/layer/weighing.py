"""From the scores of a layer to its weights, in the order in which real layers go: the one place that does it.

    A = f(cap tanh(p / cap) + b),    f the score function over allowed keys and a sink, if there is one; and what is beside it

Every step is left out where the layer has none. Arrays broadcast to those of the scores, whose layout is the caller's: that of
a layer has axes (head, query, key), that of a token (head, key), that of a head (key).
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.base.tracing import traced
from hierattn.layer.scores import ScoreFunction
from hierattn.numerics.softmax_integrals import MeanVariance


@dataclass(frozen=True, eq=False)
class Weighing:
    """How scores p become weights.

    - cap: soft cap of scores; None for none
    - added: bias, and what the score function adds; None for nothing
    - allowed: keys that are not masked; None for all
    - sink: logit of a key without a value; None for none
    - beside: what is added to the weights; None for nothing
    - axis: of keys
    """

    cap: Any
    added: Any
    allowed: Any
    sink: Any
    beside: Any
    function: ScoreFunction
    axis: int = -1

    def weights(self, p: Any) -> Any:
        """A of scores p, by NumPy for NumPy's arrays."""
        A = self.function.weights(self._logits(p), self.allowed, self.axis, _like(self.sink, p))
        return A if self.beside is None else A + _like(self.beside, p)

    def pull_back(self, p: Any, A: Any, dA: Any) -> Any:
        """The gradient in scores p of a function whose gradient in their weights A is dA."""
        A = A if self.beside is None else A - _like(self.beside, p)
        back = self.function.pull_back(A, dA, self.allowed, self.axis)
        return back if self.cap is None else back * (1 - jnp.tanh(p / self.cap) ** 2)

    def _logits(self, p: Any) -> Any:
        if self.cap is not None:
            p = self.cap * (np if isinstance(p, np.ndarray) else jnp).tanh(p / self.cap)
        return p if self.added is None else p + _like(self.added, p)

    @property
    def shift_invariant(self) -> bool:
        """Does a constant added to a row of scores change nothing?"""
        return self.function.shift_invariant and self.cap is None and self.sink is None

    @property
    def sums_to_one(self) -> bool:
        """Do the weights of a row sum to one?"""
        return self.function.sums_to_one and self.sink is None

    @property
    def homogeneous(self) -> bool:
        """Is A(c p) = c A(p), so that scales of scores and of values cannot be told apart?"""
        return self.function.homogeneous and self.cap is None and self.added is None

    @property
    def integrals(self) -> ModuleType | None:
        """Exact integrals over independent scores, where they are known."""
        plain = self.cap is None and self.sink is None and self.beside is None
        return self.function.integrals if plain else None

    def largest(self, K: Any) -> Any:
        """A bound on w K w' over all weights w of a row, K the kernel of its keys; infinite if there is none."""
        return self.function.largest(K, self.beside)

    def closed_form(self, K: np.ndarray, C: np.ndarray, n_H: int | None) -> MeanVariance | None:
        """Mean and variance of u = w K w' for a head's scores N(0, C r), r ~ chi2_{n_H} / n_H (1 at infinite n_H), if known.

        Always so where scores do not vary, and where all keys are one and weights sum to one.
        """
        if not C.any() or (self.sums_to_one and np.all(K[0, 0] == K)):
            w = self.weights(np.zeros(len(K)))
            return MeanVariance(w @ K @ w, 0.0, 0.0, 0.0)
        return None if self.cap is not None else self.function.closed_form(K, C, self.added, n_H)

    def of_token(self, token: int, keys: np.ndarray, heads: int) -> Self:
        """Of a layer's, that of the keys which a token sees: axes (head, key)."""

        def row(x: Any) -> Any:
            return None if x is None else x[..., token, :][..., keys]

        added = row(self.added) if self.added is not None else np.zeros(len(keys))
        beside = None if self.beside is None else row(self.beside)[None]
        sink = None if self.sink is None else self.sink[..., 0]
        added = (np if isinstance(added, np.ndarray) else jnp).broadcast_to(added, (heads, len(keys)))
        return replace(self, added=added, allowed=None, sink=sink, beside=beside)

    def of_head(self, a: int) -> Self:
        """Of a token's, that of one head: axis (key)."""
        sink, beside = (None if x is None else x[i] for x, i in ((self.sink, a), (self.beside, 0)))
        return replace(self, added=self.added[a], sink=sink, beside=beside)

    @property
    def mark(self) -> tuple[float, ...]:
        """What tells a head's from those of other heads of a layer."""
        return *self.added.tolist(), *np.ravel(() if self.sink is None else self.sink).tolist()

    def keys_first(self) -> Self:
        """Of a token's or head's, with the axis of keys first, heads next if there are any, and one of networks last."""

        def moved(x: Any) -> Any:
            return None if x is None else x.T[..., None]

        return replace(self, added=moved(self.added), sink=moved(self.sink), beside=moved(self.beside), axis=0)

    def of_queries(self, queries: np.ndarray, heads: int, keys: int) -> Self:
        """Of a layer's, that of some queries, with an axis of networks last: axes (head, query, key, network)."""

        def rows(x: Any) -> Any:
            return None if x is None else x[..., queries, :][..., None]

        added = rows(np.zeros((keys, keys)) if self.added is None else self.added)
        added = jnp.asarray(np.broadcast_to(added, (heads, *added.shape[-3:])))
        allowed = None if self.allowed is None or self.allowed[queries].all() else jnp.asarray(rows(self.allowed))
        sink = None if self.sink is None else self.sink[..., None]
        return replace(self, added=added, allowed=allowed, sink=sink, beside=rows(self.beside), axis=2)

    def astype(self, dtype: Any) -> Self:
        """Numbers in another precision."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)


ARRAYS = ("cap", "added", "allowed", "sink", "beside")
jax.tree_util.register_dataclass(Weighing, data_fields=ARRAYS, meta_fields=("function", "axis"))


def _like(x: Any, p: Any) -> Any:
    """An array as those that it is computed with."""
    if x is None:
        return None
    return np.asarray(x) if isinstance(p, np.ndarray) and not traced(x) else jnp.asarray(x, p.dtype)
