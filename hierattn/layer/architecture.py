"""The one description of an attention layer, from which both its law and its finite networks are made.

    Y = H^{-1/2} sum_a A_a (X W^{V,a}) W^{O,a},    A_a = softmax over keys of the scores p^(a)

All weights are independent Gaussians with entries of variance sigma^2 / fan_in (THEORY section 1 and 7).
"""

from dataclasses import dataclass, fields
from dataclasses import replace as replace_fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hierattn.base.errors import unusable
from hierattn.layer import checks, kernels, masks
from hierattn.layer.checks import PER_HEAD, SCALE_NAMES
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.layer.weighing import Weighing

ARRAY_NAMES = (*SCALE_NAMES, "bias", "rotary", "qk_gain", "qk_eps", "cap", "sink", "sink_scale")


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
    - window: keys of fewer positions away than this alone are seen; chunk: keys of the same chunk of so many positions
    - bias: fixed term added to the scores, (s, s) or (H, s, s)
    - rotary: frequencies theta_b of rotary position embeddings, one for each pair of head coordinates
    - qk_norm: queries and keys are normed, before they are turned: "rms" over a head's coordinates, "layer" over these less
      their mean, "rms_all" over the coordinates of all heads; with eps qk_eps and the gain qk_gain, g_q g_k, one or one a head
    - cap: soft cap c of scores, c tanh(p / c), before the bias is added
    - sink: logit of a key without a value, one or one per head; sink_scale: its standard deviation over networks if it varies
    - score_function: "softmax" over keys, or another of `hierattn.layer.scores`, such as "identity"

    Real layers do all this in one order: queries and keys, norm, rotary, scale, cap, bias, mask, score function with its sink.
    Under qk_norm the scales sigma_q and sigma_k drop out but for what eps leaves of them; score_scale is then the gain.
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
    window: int | None = None
    chunk: int | None = None
    qk_norm: str | None = None
    qk_gain: Any = 1.0
    qk_eps: Any = 0.0
    cap: Any = None
    sink: Any = None
    sink_scale: Any = None

    def __post_init__(self) -> None:
        for name, value in checks.checked(self).items():
            object.__setattr__(self, name, value)

    @property
    def score_scale(self) -> Float[Array | np.ndarray, " H"]:
        """What scores of unit kernels are multiplied by, head by head: sigma_Q sigma_K, or the gain of normed ones."""
        return _per_head(self.sigma_q * self.sigma_k if self.qk_norm is None else self.qk_gain, self.heads)

    @property
    def value_scale(self) -> Float[Array | np.ndarray, " H"]:
        """sigma_V sigma_O of every head."""
        return _per_head(self.sigma_v * self.sigma_o, self.heads)

    @property
    def positional(self) -> bool:
        """Do places of tokens count, so that a layer of some of them alone is no layer of this kind?"""
        return self.rotary is not None or self.score_function == "shaped"

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
        """The same layer with another score_scale and sigma_V sigma_O = value_scale; only products matter."""
        if self.qk_norm is not None:
            return self.replace(qk_gain=score_scale, sigma_v=1.0, sigma_o=value_scale)
        return self.replace(sigma_q=score_scale, sigma_k=1.0, sigma_v=1.0, sigma_o=value_scale)

    def with_scores_times(self, factor: Any) -> "Architecture":
        """The same layer with scores so many times as large; zero for none at all."""
        if self.qk_norm is not None:
            return self.replace(qk_gain=self.qk_gain * factor)
        return self.replace(sigma_q=self.sigma_q * factor)

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

    @property
    def masked(self) -> bool:
        """May some query not look at some key?"""
        return self.mask is not None or self.window is not None or self.chunk is not None

    def allowed(self, s_q: int, s_k: int) -> Bool[np.ndarray, "{s_q} {s_k}"] | Bool[Array, "{s_q} {s_k}"]:
        """Mask, window and chunks as a boolean (query, key) array, checked to fit and to leave every query a key."""
        return masks.allowed(self.mask, s_q, s_k, self.window, self.chunk)

    def rows(self, tokens: Any, t: int) -> "Architecture":
        """A layer of t tokens as the queries of some of them see it: their rows of mask and bias."""
        if self.positional and not np.array_equal(tokens, np.arange(t)):
            why = "rotary embeddings" if self.rotary is not None else "shaped attention"
            raise unusable("tokens", f"all of the kernel's tokens in order for {why}", np.asarray(tokens).tolist())
        return self.of_queries(tokens, t, t)

    def of_queries(self, tokens: Any, s_q: int, s_k: int) -> "Architecture":
        """The same for queries that need not be keys."""
        mask = np.asarray(self.allowed(s_q, s_k))[tokens] if self.masked else None
        bias = None if self.bias is None else self.bias[..., tokens, :]
        return self.replace(mask=mask, window=None, chunk=None, bias=bias)

    def some_heads(self, first: int, number: int) -> "Architecture":
        """`number` heads from the first on, as one group unless that is all of them."""
        if number == self.heads:
            return self
        heads = slice(first, first + number)
        own = {name: x[heads] for name in PER_HEAD if np.ndim(x := getattr(self, name))}
        own |= {"bias": self.bias[heads]} if np.ndim(self.bias) == 3 else {}
        return self.replace(heads=number, key_value_heads=1, **own)

    def weighing(self, s_q: int, s_k: int) -> Weighing:
        """How scores (head, query, key) become weights."""
        function, allowed = SCORE_FUNCTIONS[self.score_function], self.allowed(s_q, s_k)
        offset, added = function.offset(s_k), self.bias
        if offset:
            added = np.full((s_q, s_k), offset) if added is None else added + offset
        sink = self.sink if self.sink is None else _per_head(self.sink, self.heads)[:, None, None]
        parts = self.cap, added, allowed if self.masked else None, sink, function.beside(allowed)
        return Weighing(*parts, function)

    def score_kernels(self, K: Any) -> tuple[Any, Any]:
        """K as scores see it, of queries and of keys: normed if these are, at an infinite head_dim."""
        if self.qk_norm is None or self.head_dim is not None:
            return K, K
        K_q, K_k = (kernels.normed(K, self.qk_eps / np.ravel(sigma)[0] ** 2) for sigma in (self.sigma_q, self.sigma_k))
        return K_q, K_k

    def attention(self, p: Float[Array, "*batch H q k"]) -> Float[Array, "*batch H q k"]:
        """Attention weights A of the scores p (before cap and bias): the score function over the allowed keys."""
        return self.weighing(*p.shape[-2:]).weights(p)

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
