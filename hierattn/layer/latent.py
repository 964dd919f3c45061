"""Latent attention, described: keys and values come from a latent of few coordinates, normed, that all heads share.

    c = rms(X W^C),   k_a = c W^{K,a},   v_a = c W^{V,a},   q_a = X W^{Q,a}, or of a normed latent of their own
    A_a = softmax over keys of (q_a k_a' + turned(q'_a) turned(k')') / sqrt(n_H + n_R),   k' = X W^R

with a part of n_R coordinates, turned by rotary embeddings, whose one key k' all heads share and which sees the inputs
themselves (DeepSeek-AI 2024). All weights are independent Gaussians with entries of variance sigma^2 / fan_in.
"""

import math
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import Any

import jax
import numpy as np

from hierattn.base.errors import check_counts, unusable
from hierattn.layer.architecture import Architecture
from hierattn.layer.checks import checked_number, checked_scale

SIGMAS = ("sigma_q", "sigma_k", "sigma_r", "sigma_v", "sigma_o", "sigma_query_latent", "sigma_key_latent")
NUMBERS = (*SIGMAS, "eps", "rotary")
STATIC = ("heads", "head_dim", "value_dim", "key_rank", "query_rank")


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False, kw_only=True)
class LatentAttention:
    """A layer of latent attention.

    - heads: H
    - head_dim, value_dim: coordinates of a head's queries and keys, less those that are turned, and of its values
    - key_rank, query_rank: coordinates of the latents; math.inf for their limit; query_rank None: queries see the inputs
    - rotary: frequencies theta_b of the turned part, one for each pair of its coordinates; None without that part
    - sigma_q, sigma_k, sigma_v, sigma_o: weight scales; sigma_r: of the shared key that is turned
    - sigma_query_latent, sigma_key_latent: of the maps to the latents, which matter beside eps alone
    - eps: of both norms
    - mask: as of an `Architecture`
    """

    heads: int = 1
    head_dim: int = 1
    value_dim: int = 1
    key_rank: Any = math.inf
    query_rank: Any = None
    rotary: Any = None
    sigma_q: float = 1.0
    sigma_k: float = 1.0
    sigma_r: float = 1.0
    sigma_v: float = 1.0
    sigma_o: float = 1.0
    sigma_query_latent: float = 1.0
    sigma_key_latent: float = 1.0
    eps: float = 0.0
    mask: Any = None

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in STATIC}
        ranks = {"key_rank": (math.inf,), "query_rank": (math.inf, None)}  # what is no number and yet allowed
        check_counts(**{name: value for name, value in counts.items() if value not in ranks.get(name, ())})
        for name in SIGMAS:
            if np.ndim(getattr(self, name)):
                raise unusable(name, "one number for all heads", f"shape {np.shape(getattr(self, name))}")
            object.__setattr__(self, name, checked_scale(name, getattr(self, name), self.heads))
        object.__setattr__(self, "eps", checked_number("eps", self.eps, 0.0))
        rotary = None if self.position is None else self.position.rotary
        object.__setattr__(self, "rotary", rotary)  # all others are checked by the parts
        object.__setattr__(self, "mask", self.values.mask)

    @property
    def dim(self) -> int:
        """All coordinates of a query: scores are divided by the root of it."""
        return self.head_dim + (0 if self.rotary is None else 2 * len(self.rotary))

    @cached_property
    def content(self) -> Architecture:
        """The part of queries and keys that comes from the latent."""
        return Architecture(heads=self.heads, head_dim=self.head_dim, sigma_q=self.sigma_q, sigma_k=self.sigma_k)

    @cached_property
    def position(self) -> Architecture | None:
        """The part that is turned: one key for all heads."""
        if self.rotary is None:
            return None
        scales: dict[str, Any] = {"sigma_q": self.sigma_q, "sigma_k": self.sigma_r}
        n_R = 2 * np.size(self.rotary)
        return Architecture(heads=self.heads, head_dim=n_R, key_value_heads=1, rotary=self.rotary, **scales)

    @cached_property
    def values(self) -> Architecture:
        """Weights, values and outputs."""
        scales: dict[str, Any] = {"sigma_v": self.sigma_v, "sigma_o": self.sigma_o}
        return Architecture(heads=self.heads, head_dim=self.value_dim, mask=self.mask, **scales)

    @property
    def bias(self) -> None:
        """There is none."""

    def allowed(self, s_q: int, s_k: int) -> Any:
        """The mask as a boolean (query, key) array."""
        return self.values.allowed(s_q, s_k)

    def at_width(self, width: int) -> "LatentAttention":
        """Nothing in it depends on the width."""
        return self

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Numbers are leaves, what fixes shapes is static."""
        word = self.mask if isinstance(self.mask, str) else None
        leaves = (*(getattr(self, name) for name in NUMBERS), None if word else self.mask)
        return leaves, (*(getattr(self, name) for name in STATIC), word)

    @classmethod
    def tree_unflatten(cls, static: tuple, leaves: tuple) -> "LatentAttention":
        """The inverse, without checks."""
        self = object.__new__(cls)
        for name, value in zip(
            (*NUMBERS, *STATIC, "mask"), (*leaves[:-1], *static[:-1], static[-1] or leaves[-1]), strict=True
        ):
            object.__setattr__(self, name, value)
        return self

    def replace(self, **changes: Any) -> "LatentAttention":
        """A copy with some fields changed."""
        return replace_fields(self, **changes)
