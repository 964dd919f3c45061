"""Two numbers a layer: norm and cosine of exchangeable tokens where heads are so many that scores average out.

With infinitely many heads, infinite width and tokens of one norm v and covariance k, the Gram matrix stays of this kind, and

    Sigma_ii = o^2 (k + (v - k) y2),    Sigma_ik = o^2 (k + (v - k) y11)

with y2 = E sum_j w_ij^2 and y11 = E sum_j w_ij w_kj, exactly for any number of tokens (THEORY section 8). Where tokens see
different keys, or positions matter, tokens are not exchangeable, and the recursion is refused.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.base.float64 import in_float64
from hierattn.layer.architecture import Architecture
from hierattn.numerics.softmax_integrals import overlap
from hierattn.stack.blocks import MLP, Block, Norm
from hierattn.stack.functions import dual
from hierattn.stack.stack import Stack

Overlaps = Callable[[int, float, "Exchangeable"], tuple[float, float]]


class Exchangeable(NamedTuple):
    """Every token's mean square v, and the mean product k of every two."""

    v: float
    k: float

    @property
    def cosine(self) -> float:
        """Of every two tokens."""
        return self.k / self.v

    def plus(self, skip: float, gain: float, branch: "Exchangeable") -> "Exchangeable":
        """The stream with a branch added."""
        return Exchangeable(skip**2 * self.v + gain**2 * branch.v, skip**2 * self.k + gain**2 * branch.k)

    def normed(self, norm: Norm | None) -> "Exchangeable":
        """Of one mean square, but for eps; means are zero at infinite width."""
        if norm is None:
            return self
        scale = norm.gain**2 / (self.v + norm.eps)
        return Exchangeable(scale * self.v, scale * self.k)


def exact(tokens: int, score_scale: float, state: Exchangeable) -> tuple[float, float]:
    """y2 and y11 of so many tokens."""
    tau = score_scale * (state.v * (state.v - state.k)) ** 0.5
    return overlap(tokens, tau, 1.0)[0], overlap(tokens, tau, state.cosine)[0]


def random_energy(tokens: int, score_scale: float, state: Exchangeable) -> tuple[float, float]:
    """The same in the limit of many tokens: max(0, 1 - beta_c / beta) and 0 (Giorlandino and Goldt 2026)."""
    return max(0.0, beyond(tokens, score_scale, state)), 0.0


def beyond(tokens: int, score_scale: float, state: Exchangeable) -> float:
    """1 - beta_c / beta: how far scores are beyond the point where attention begins to choose; negative before it."""
    tau = score_scale * (state.v * (state.v - state.k)) ** 0.5
    return float(1 - (2 * np.log(tokens)) ** 0.5 / tau) if tau else -np.inf


def mean_field(stack: Stack, overlaps: Overlaps = exact) -> list[Exchangeable]:
    """The stream after every layer, as `Stack.sample` counts them, for infinitely many heads at infinite width.

    overlaps: y2 and y11 of (tokens, score_scale, state): `exact`, or their limit `random_energy`
    """
    for block in stack.blocks:
        if block.attention is not None:
            _check(block.attention)
    found = [_embedded(stack).normed(stack.embedding.norm)]
    for block in stack.blocks:
        found.append(_through(block, found[-1], stack.tokens, overlaps))
    return found if stack.final_norm is None else [*found, found[-1].normed(stack.final_norm)]


def _check(layer: Architecture) -> None:
    names = ("mask", "window", "chunk", "bias", "rotary", "qk_norm", "cap", "sink")
    unlike = [name for name in names if getattr(layer, name) is not None]
    if unlike:
        raise unusable(unlike[0], "none: exchangeable tokens", "one", "sample the stack instead")
    if layer.score_function != "softmax" or layer.scaling != "sqrt" or np.ptp(layer.score_scale) or np.ptp(layer.value_scale):
        raise unusable(
            "attention", "softmax scores, scaled by sqrt(n), equal heads", "another kind", "sample the stack instead"
        )


def _embedded(stack: Stack) -> Exchangeable:
    K = stack.embedding.kernel if stack.embedding.kernel is not None else stack.embedding.gram
    if stack.means and stack.embedding.means is not None and np.any(stack.embedding.means):
        raise unusable("embedding", "tokens of mean zero, where a LayerNorm sees them", "others", "sample the stack instead")
    v, k = K[0, 0], K[0, -1]
    exchangeable = np.full(K.shape, k) + (v - k) * np.eye(len(K))
    if not np.allclose(K, exchangeable, rtol=1e-12, atol=1e-12 * v) or not 0 <= k <= v or v == 0:
        raise unusable("embedding", "exchangeable tokens, of no negative covariance", "others", "sample the stack instead")
    return Exchangeable(float(v), float(k))


def _through(block: Block, state: Exchangeable, tokens: int, overlaps: Overlaps) -> Exchangeable:
    def output(branch: Any, seen: Exchangeable, _: Exchangeable) -> Exchangeable:
        return _perceived(branch, seen) if isinstance(branch, MLP) else attended(branch, seen, tokens, overlaps)

    return block.through(state, output, lambda x: x.normed(block.norm), Exchangeable.plus)


def attended(layer: Architecture, state: Exchangeable, tokens: int, overlaps: Overlaps = exact) -> Exchangeable:
    """Mean Sigma of attention."""
    o, apart = float(layer.value_scale[0]), state.v - state.k
    y2, y11 = overlaps(tokens, float(layer.score_scale[0]), state)
    return Exchangeable(o**2 * (state.k + apart * y2), o**2 * (state.k + apart * y11))


@in_float64
def _pair(mlp: MLP, K: np.ndarray) -> Any:
    return dual(mlp.activation, jnp.asarray(K))


def _perceived(mlp: MLP, state: Exchangeable) -> Exchangeable:
    """Of infinitely many hidden units."""
    K = mlp.sigma_in**2 * np.array([[state.v, state.k], [state.k, state.v]]) + (mlp.sigma_bias or 0.0) ** 2
    Sigma = mlp.sigma_out**2 * np.asarray(_pair(mlp, K)) * (K if mlp.gated else 1) + (mlp.sigma_bias_out or 0.0) ** 2
    return Exchangeable(float(Sigma[0, 0]), float(Sigma[0, 1]))
