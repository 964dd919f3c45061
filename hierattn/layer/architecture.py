"""The one description of an attention layer, from which both its law and its finite networks are made.

    Y = H^{-1/2} sum_a A_a (X W^{V,a}) W^{O,a},    A_a = softmax over keys of the scores p^(a)

All weights are independent Gaussians with entries of variance sigma^2 / fan_in (THEORY section 1 and 7).
"""

from dataclasses import dataclass, fields
from dataclasses import replace as replace_fields
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hierattn.base.errors import as_array, check_choice, unusable
from hierattn.base.tracing import traced
from hierattn.layer import masks
from hierattn.layer.scores import SCORE_FUNCTIONS, ScoreFunction

SCALINGS = ("sqrt", "linear")
SCALE_NAMES = ("sigma_q", "sigma_k", "sigma_v", "sigma_o")
ARRAY_NAMES = (*SCALE_NAMES, "bias", "rotary")


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False, kw_only=True)
class Architecture:
    """An attention layer, described.

    - heads: H, the number of heads
    - head_dim: n_H, the inner dimension of a head; None takes it to infinity with the width
    - key_value_heads: heads that own their W^K and W^V (grouped queries); None gives every head its own
    - sigma_q .. _o: weight scales, one float or one per head
    - scaling: "sqrt": scores divided by sqrt(n_H); "linear": divided by n_H, so that they vanish as it grows
    - mask: None, "causal", or a boolean (s, s) array: may query i look at key j?
    - bias: fixed term added to the scores, (s, s) or (H, s, s)
    - rotary: frequencies theta_b of rotary position embeddings, one for each pair of head coordinates
    - score_function: "softmax" over keys, or another of `hierattn.layer.scores`, such as "identity"

    With cross-attention, queries and keys have kernels of their own, which `Law` takes; mask and bias are then (s_q, s_k).
    """

    heads: int = 1
    head_dim: int | None = None
    key_value_heads: int | None = None
    sigma_q: Any = 1.0
    sigma_k: Any = 1.0
    sigma_v: Any = 1.0
    sigma_o: Any = 1.0
    scaling: str = "sqrt"
    mask: Any = None
    bias: Any = None
    rotary: Any = None
    score_function: str = "softmax"

    def __post_init__(self) -> None:
        for name in ("heads", "head_dim", "key_value_heads"):
            _check_count(name, getattr(self, name), optional=name != "heads")
        for name in SCALE_NAMES:
            object.__setattr__(self, name, _checked_scale(name, getattr(self, name), self.heads))
        check_choice("scaling", self.scaling, SCALINGS)
        check_choice("score_function", self.score_function, tuple(SCORE_FUNCTIONS))
        object.__setattr__(self, "mask", masks.checked(self.mask))
        object.__setattr__(self, "bias", _checked_bias(self.bias, self.heads))
        object.__setattr__(self, "rotary", _checked_rotary(self.rotary, self.head_dim))
        _check_groups(self)

    @property
    def score_scale(self) -> Float[Array | np.ndarray, " H"]:
        """sigma_Q sigma_K of every head."""
        return _per_head(self.sigma_q * self.sigma_k, self.heads)

    @property
    def value_scale(self) -> Float[Array | np.ndarray, " H"]:
        """sigma_V sigma_O of every head."""
        return _per_head(self.sigma_v * self.sigma_o, self.heads)

    @property
    def scores(self) -> ScoreFunction:
        """How its scores become weights."""
        return SCORE_FUNCTIONS[self.score_function]

    @property
    def score_factor(self) -> float:
        """What the scaling leaves of scores divided by sqrt(n_H): 1, or n_H^{-1/2} (0 at infinity) when linear."""
        if self.scaling == "sqrt":
            return 1.0
        return 0.0 if self.head_dim is None else self.head_dim**-0.5

    @property
    def group_size(self) -> int:
        """Heads that share one W^K and W^V."""
        return self.heads // self.groups

    @property
    def groups(self) -> int:
        """Sets of heads with a W^K and W^V of their own."""
        return self.key_value_heads or self.heads

    def with_scales(self, score_scale: Any, value_scale: Any) -> "Architecture":
        """The same layer with sigma_Q sigma_K = score_scale and sigma_V sigma_O = value_scale; only products matter."""
        return self.replace(sigma_q=score_scale, sigma_k=1.0, sigma_v=1.0, sigma_o=value_scale)

    def at_width(self, width: int) -> "Architecture":
        """The layer of a network of this width: an infinite head_dim becomes the width, rotary frequencies fill the head."""
        n_H = self.head_dim or width
        if self.rotary is None or 2 * self.rotary.size == n_H:
            return self.replace(head_dim=n_H)
        if n_H % (2 * self.rotary.size):
            raise unusable("width", f"a multiple of {2 * self.rotary.size}, two coordinates a rotary frequency", width)
        return self.replace(head_dim=n_H, rotary=np.repeat(self.rotary, n_H // (2 * self.rotary.size)))

    def replace(self, **changes: Any) -> "Architecture":
        """A copy with some fields changed."""
        return replace_fields(self, **changes)

    def allowed(self, s_q: int, s_k: int) -> Bool[np.ndarray, "{s_q} {s_k}"] | Bool[Array, "{s_q} {s_k}"]:
        """The mask as a boolean (query, key) array, checked to fit and to leave every query a key."""
        return masks.allowed(self.mask, s_q, s_k)

    def attention(self, p: Float[Array, "*batch H q k"]) -> Float[Array, "*batch H q k"]:
        """Attention weights A of the scores p (bias not yet added): the score function over the allowed keys."""
        added = self.added(*p.shape[-2:])
        p = p if added is None else p + jnp.asarray(added, p.dtype)
        return self.scores.weights(p, None if self.mask is None else self.allowed(*p.shape[-2:]))

    def added(self, s_q: int, s_k: int) -> Float[Array | np.ndarray, "*H {s_q} {s_k}"] | None:
        """What is added to all scores of a sequence: the bias, and what the score function adds; None if that is nothing."""
        offset = self.scores.offset(s_k)
        if self.bias is None:
            return np.full((s_q, s_k), offset) if offset else None
        return self.bias + offset

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Numbers are leaves (differentiable, no recompilation); everything that fixes shapes is static."""
        static = tuple(getattr(self, name) for name in _static_names())
        word = self.mask if isinstance(self.mask, str) else None
        mask = None if word else self.mask
        return (*(getattr(self, name) for name in ARRAY_NAMES), mask), (*static, word)

    @classmethod
    def tree_unflatten(cls, static: tuple, leaves: tuple) -> "Architecture":
        """The inverse of tree_flatten, without checks."""
        self = object.__new__(cls)
        *arrays, mask = leaves
        *settings, word = static
        values = dict(zip((*ARRAY_NAMES, *_static_names()), (*arrays, *settings), strict=True), mask=word or mask)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        return self


def _static_names() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Architecture) if f.name not in (*ARRAY_NAMES, "mask"))


def _per_head(x: Any, heads: int) -> Any:
    xp = np if isinstance(x, (float, np.floating, np.ndarray)) else jnp
    return xp.broadcast_to(x, (heads,))


def _check_count(name: str, value: Any, optional: bool) -> None:
    if optional and value is None:
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise unusable(name, "a positive whole number" + (" or None" if optional else ""), repr(value))


def _checked_scale(name: str, value: Any, heads: int) -> Any:
    if traced(value):
        return value
    scale = as_array(name, value)
    if scale.shape not in ((), (heads,)):
        raise unusable(name, f"a number or {heads} numbers, one per head", f"shape {scale.shape}")
    if not np.all((scale == 0) | ((scale > 1e-30) & (scale < 1e30))):
        raise unusable(name, "numbers that are 0 or between 1e-30 and 1e30", scale.tolist())
    return float(scale) if scale.ndim == 0 else scale


def _checked_bias(bias: Any, heads: int) -> Any:
    if bias is None or traced(bias):
        return bias
    bias = as_array("bias", bias)
    if bias.ndim not in (2, 3) or (bias.ndim == 3 and bias.shape[0] != heads):
        raise unusable("bias", f"shape (queries, keys) or ({heads}, queries, keys)", bias.shape)
    if not np.all(np.isfinite(bias)):
        raise unusable("bias", "finite numbers", "NaN or infinity", "use mask to forbid a key")
    return bias


def _checked_rotary(rotary: Any, head_dim: int | None) -> Any:
    if rotary is None or traced(rotary):
        return rotary
    rotary = as_array("rotary", rotary)
    if rotary.ndim != 1 or rotary.size == 0 or not np.all(np.isfinite(rotary)):
        raise unusable("rotary", "a vector of finite frequencies", f"shape {rotary.shape}")
    if head_dim is not None and 2 * rotary.size != head_dim:
        remedy = "use frequency 0 for coordinates that are not rotated"
        raise unusable("rotary", f"head_dim / 2 = {head_dim / 2:g} frequencies", rotary.size, remedy)
    return rotary


def _check_groups(layer: Architecture) -> None:
    owners = layer.key_value_heads
    if owners is None:
        return
    if layer.heads % owners:
        raise unusable("key_value_heads", f"a divisor of heads = {layer.heads}", owners)
    for name in ("sigma_k", "sigma_v"):
        scale = getattr(layer, name)
        if isinstance(scale, np.ndarray) and np.ptp(scale.reshape(owners, -1), axis=1).any():
            raise unusable(name, "one value for all heads that share a matrix", scale.tolist())
