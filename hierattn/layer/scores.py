"""How scores become attention weights: every score function, its derivative, and what it keeps.

    softmax    A_ij = e^{p_ij} / sum_k e^{p_ik}
    identity   A_ij = p_ij
    sigmoid    A_ij = 1 / (1 + e^{-(p_ij - log k)}), k the number of keys in the sequence (Ramapuram et al. 2024)

A new score function is one class here and its name in `SCORE_FUNCTIONS`: laws, moments, marginals, finite networks and fits
ask it for its weights and for what it keeps, and do without whatever it does not know.
"""

from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.numerics import softmax_integrals
from hierattn.numerics.softmax_integrals import MeanVariance

WRITTEN_OUT = 16  # terms of a sum at most


class ScoreFunction(ABC):
    """A map from the scores of a query to its weights over keys. It has no state: one object stands for each.

    - shift_invariant: does a constant added to a row of scores change nothing?
    - sums_to_one: do the weights of a row sum to one?
    - homogeneous: is A(c p) = c A(p), so that scales of scores and of values cannot be told apart?
    - integrals: exact integrals over independent scores (`softmax_integrals`), where they are known
    """

    name: ClassVar[str]
    shift_invariant: ClassVar[bool] = False
    sums_to_one: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    integrals: ClassVar[ModuleType | None] = None

    @abstractmethod
    def weights(self, p: Any, allowed: Any = None, axis: int = -1) -> Any:
        """Weights of scores p, keys along an axis; zero for keys that are not allowed. By NumPy for NumPy's arrays."""

    @abstractmethod
    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """The gradient in the scores of a function whose gradient in the weights A is dA."""

    def offset(self, keys: int) -> float:
        """What is added to all scores of a sequence with so many keys."""
        return 0.0

    def largest(self, K: Any) -> Any:
        """A bound on w K w' over all weights w of a row, K the kernel of its keys; infinite if there is none."""
        return np.inf

    def closed_form(self, K: np.ndarray, C: np.ndarray, bias: np.ndarray, n_H: int | None) -> MeanVariance | None:
        """Mean and variance of u = w K w' for scores N(bias, C r), r ~ chi2_{n_H} / n_H (1 at infinite n_H), if known.

        Always so where scores do not vary, and where all keys are one and weights sum to one.
        """
        if C.any() and not (self.sums_to_one and np.all(K[0, 0] == K)):
            return None
        w = self.weights(bias)
        return MeanVariance(w @ K @ w, 0.0, 0.0, 0.0)


class Softmax(ScoreFunction):
    """Weights proportional to e^p: positive, summing to one."""

    name = "softmax"
    shift_invariant = True
    sums_to_one = True
    integrals: ClassVar[ModuleType | None] = softmax_integrals

    def weights(self, p: Any, allowed: Any = None, axis: int = -1) -> Any:
        """e^p over its sum; rows are shifted by their largest score, so that nothing overflows."""
        if not isinstance(p, np.ndarray):
            return jax.nn.softmax(p if allowed is None else jnp.where(allowed, p, -jnp.inf), axis=axis)
        p = p if allowed is None else np.where(allowed, p, -np.inf)
        w = np.exp(p - p.max(axis=axis, keepdims=True))
        w /= w.sum(axis=axis, keepdims=True)
        return w

    def pull_back(self, A: Any, dA: Any, allowed: Any = None, axis: int = -1) -> Any:
        """A (dA - sum A dA): zero where A is."""
        return A * (dA - _sum(A * dA, axis))

    def largest(self, K: Any) -> Any:
        """The largest K_jj: w K w' is convex, and w an average of keys."""
        return _library(K).max(K.diagonal())


class Identity(ScoreFunction):
    """The scores themselves are the weights."""

    name = "identity"
    homogeneous = True

    def weights(self, p: Any, allowed: Any = None, axis: int = -1) -> Any:
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

    def weights(self, p: Any, allowed: Any = None, axis: int = -1) -> Any:
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

    def largest(self, K: Any) -> Any:
        """The sum of all |K_jl|: no weight is above 1."""
        return abs(K).sum()


def _sum(x: Any, axis: int) -> Any:
    """Along an axis. A short one is written out: where networks are last XLA adds slices many times faster."""
    n = x.shape[axis]
    return sum(_library(x).split(x, n, axis)) if n <= WRITTEN_OUT else x.sum(axis=axis, keepdims=True)


def _library(x: Any) -> Any:
    return np if isinstance(x, np.ndarray) else jnp


SCORE_FUNCTIONS: dict[str, ScoreFunction] = {function.name: function for function in (Softmax(), Identity(), Sigmoid())}
