"""How scores become attention weights: every score function, its derivative, and what it keeps.

    softmax    A_ij = e^{p_ij} / (e^{c} + sum_k e^{p_ik}), with a sink of logit c for each head (without one e^c is 0)
    identity   A_ij = p_ij
    relu       A_ij = max(p_ij, 0)
    sigmoid    A_ij = 1 / (1 + e^{-(p_ij - log k)}), k the number of keys in the sequence (Ramapuram et al. 2024)
    shaped     A_ij = delta_ij + softmax(p)_ij - 1 / k_i, k_i the number of keys that i may look at (Noci et al. 2023)

A new score function is one class here and its name in `SCORE_FUNCTIONS`: laws, moments, marginals, finite networks and fits
ask `Weighing` (in `weighing`) for weights and for what they keep, and do without whatever it does not know.
"""

from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.base.tracing import traced
from hierattn.numerics import softmax_integrals
from hierattn.numerics.softmax_integrals import MeanVariance

WRITTEN_OUT = 16  # terms of a sum at most


class ScoreFunction(ABC):
    """A map from the scores of a query to its weights over keys. It has no state: one object stands for each.

    - shift_invariant: does a constant added to a row of scores change nothing?
    - sums_to_one: do the weights of a row sum to one?
    - homogeneous: is A(c p) = c A(p), so that scales of scores and of values cannot be told apart?
    - integrals: exact integrals over independent scores (`softmax_integrals`), where they are known
    - takes_sink: can a key without a value take a share of the weights?
    - may_vanish: are all weights of a row zero in some networks?
    """

    name: ClassVar[str]
    shift_invariant: ClassVar[bool] = False
    sums_to_one: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    integrals: ClassVar[ModuleType | None] = None

    takes_sink: ClassVar[bool] = False
    may_vanish: ClassVar[bool] = False

    @abstractmethod
    def weights(self, p: Any, allowed: Any = None, axis: int = -1, sink: Any = None) -> Any:
        """Weights of scores p, keys along an axis; zero for keys that are not allowed. By NumPy for NumPy's arrays.

        sink: logit of a key without a value, one for each row, for functions that take one.
        """

    @abstractmethod
    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """The gradient in the scores of a function whose gradient in the weights A is dA."""

    def offset(self, keys: int) -> float:
        """What is added to all scores of a sequence with so many keys."""
        return 0.0

    def beside(self, allowed: Any) -> Any:
        """What is added to the weights (query, key) whatever the scores, where keys are allowed; None if nothing is."""
        return None

    def largest(self, K: Any, beside: Any = None) -> Any:
        """A bound on w K w' over all weights w of a row, K the kernel of its keys; infinite if there is none."""
        return np.inf

    def closed_form(self, K: np.ndarray, C: np.ndarray, bias: np.ndarray, n_H: int | None) -> MeanVariance | None:
        """Mean and variance of u = w K w' for scores N(bias, C r), r ~ chi2_{n_H} / n_H (1 at infinite n_H), if known."""
        return None


class Softmax(ScoreFunction):
    """Weights proportional to e^p: positive, summing to one."""

    name = "softmax"
    shift_invariant = True
    sums_to_one = True
    integrals: ClassVar[ModuleType | None] = softmax_integrals
    takes_sink = True

    def weights(self, p: Any, allowed: Any = None, axis: int = -1, sink: Any = None) -> Any:
        """e^p over its sum; rows are shifted by their largest score, so that nothing overflows."""
        xp = _library(p)
        p = p if allowed is None else xp.where(allowed, p, -xp.inf)
        if sink is not None:
            top = xp.maximum(p.max(axis=axis, keepdims=True), sink)
            top = top if xp is np else jax.lax.stop_gradient(top)
            w = xp.exp(p - top)
            return w / (w.sum(axis=axis, keepdims=True) + xp.exp(sink - top))
        if xp is jnp:
            return jax.nn.softmax(p, axis=axis)
        w = np.exp(p - p.max(axis=axis, keepdims=True))
        w /= w.sum(axis=axis, keepdims=True)
        return w

    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """A (dA - sum A dA): zero where A is."""
        return A * (dA - _sum(A * dA, axis))

    def largest(self, K: Any, beside: Any = None) -> Any:
        """The largest K_jj: w K w' is convex, and w an average of keys (and of nothing, with a sink)."""
        return _library(K).max(K.diagonal())


class Identity(ScoreFunction):
    """The scores themselves are the weights."""

    name = "identity"
    homogeneous = True

    def weights(self, p: Any, allowed: Any = None, axis: int = -1, sink: Any = None) -> Any:
        """The scores of allowed keys."""
        return p if allowed is None else _library(p).where(allowed, p, 0)

    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """The gradient itself, for allowed keys."""
        return self.weights(dA, allowed)

    def closed_form(self, K: np.ndarray, C: np.ndarray, bias: np.ndarray, n_H: int | None) -> MeanVariance:
        """A quadratic form in Gaussians: E[u] = tr KC + b K b', and its variance by Isserlis, times E[r^2] = 1 + 2 / n_H."""
        KC, r_squared = K @ C, 1 + (2 / n_H if n_H else 0.0)
        variance = 2 * r_squared * np.trace(KC @ KC) + 4 * bias @ KC @ K @ bias + (r_squared - 1) * np.trace(KC) ** 2
        return MeanVariance(np.trace(KC) + bias @ K @ bias, variance, 0.0, 0.0)


class Sigmoid(ScoreFunction):
    """Every key by itself: weights between 0 and 1, about 1 / k each at initialisation thanks to the offset."""

    name = "sigmoid"

    def weights(self, p: Any, allowed: Any = None, axis: int = -1, sink: Any = None) -> Any:
        """The logistic function, by tanh, which does not overflow."""
        xp = _library(p)
        w = 0.5 + 0.5 * xp.tanh(p / 2)
        return w if allowed is None else xp.where(allowed, w, 0)

    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """A (1 - A) dA: zero where A is."""
        return A * (1 - A) * dA

    def offset(self, keys: int) -> float:
        """Minus the logarithm of the sequence's keys, masked or not."""
        return -float(np.log(keys))

    def largest(self, K: Any, beside: Any = None) -> Any:
        """The sum of all |K_jl|: no weight is above 1."""
        return abs(K).sum()


class ReLU(ScoreFunction):
    """Scores above zero; not normalised."""

    name = "relu"
    homogeneous = True
    may_vanish = True

    def weights(self, p: Any, allowed: Any = None, axis: int = -1, sink: Any = None) -> Any:
        """The positive part, for allowed keys."""
        xp = _library(p)
        w = xp.maximum(p, 0)
        return w if allowed is None else xp.where(allowed, w, 0)

    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """The gradient itself where weights are positive."""
        return _library(A).where(A > 0, dA, 0)


class Shaped(Softmax):
    """Softmax beside the identity, less its value at scores of zero: a token keeps itself, whatever the others."""

    name = "shaped"
    integrals = None
    takes_sink = False

    def beside(self, allowed: Any) -> Any:
        """I - 1 / k_i over allowed keys, which a token must be among."""
        square = allowed.shape[0] == allowed.shape[1]
        if not square or not (traced(allowed) or np.diagonal(allowed).all()):
            expected = "tokens that look at themselves for shaped attention"
            raise unusable("score_function", expected, "queries that are no keys" if not square else "a mask that forbids it")
        return np.eye(len(allowed)) - allowed / allowed.sum(axis=1, keepdims=True)

    def largest(self, K: Any, beside: Any = None) -> Any:
        """A convex function of w: what is beside plus an average of keys."""
        w = np.eye(len(K)) + beside
        return _library(K).max(((w @ K) * w).sum(axis=1))


def _sum(x: Any, axis: int) -> Any:
    """Along an axis. A short one is written out: where networks are last XLA adds slices many times faster."""
    n = x.shape[axis]
    return sum(_library(x).split(x, n, axis)) if n <= WRITTEN_OUT else x.sum(axis=axis, keepdims=True)


def _library(x: Any) -> Any:
    return np if isinstance(x, np.ndarray) else jnp


EVERY = (Softmax(), Identity(), Sigmoid(), ReLU(), Shaped())
SCORE_FUNCTIONS: dict[str, ScoreFunction] = {function.name: function for function in EVERY}
