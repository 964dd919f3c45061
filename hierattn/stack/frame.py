"""The state of a stack: every token's place in a frame of few directions, so that n coordinates are never drawn.

    X = sqrt(n) F U,    U (r, n) with orthonormal rows,    Gram matrix X X' / n = F F'

A Transformer with fresh Gaussian weights sees X through F alone. Y = L W, with W (k, n) standard normals, has coordinates
L W U' along the frame, W U' normal too, and the rest of W is a normal matrix at right angles to it: its own frame is that of a
Wishart matrix of n - r degrees of freedom. So a branch is added exactly, at any width, and few directions are enough again
after a rotation. Squares are never taken: 1 - cosine keeps its digits where tokens collapse.

With LayerNorm the first direction is that of the vector of ones: the first column of F has the tokens' means.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.numerics.random_numbers import normals, two_keys
from hierattn.numerics.wishart import bartlett
from hierattn.stack.blocks import Norm


@dataclass(frozen=True)
class Frame:
    """Tokens of some networks.

    - F: their places in the frame
    - width: n; None for infinite width, where new directions are all that a branch adds
    - means: is the first direction that of the vector of ones?
    """

    F: Float[Array, "network s r"]
    width: int | None
    means: bool

    def at(self, F: Float[Array, "network s q"]) -> "Frame":
        """Other places, of tokens of the same width."""
        return replace(self, F=F)

    def normed(self, norm: Norm | None) -> "Frame":
        """Every token normed."""
        return self.at(normed(self.F, norm, self.means))

    def plus(self, skip: Any, gain: Any, branch: "Frame") -> "Frame":
        """The stream with a branch added."""
        return added(self, skip, gain, branch.F)

    @property
    def gram(self) -> Float[Array, "network s s"]:
        """X X' / n."""
        return self.F @ self.F.mT


jax.tree_util.register_dataclass(Frame, ["F"], ["width", "means"])


def normed(F: Float[Array, "network s r"], norm: Norm | None, means: bool) -> Float[Array, "network s r"]:
    """Every token divided by its root mean square; "layer" leaves the first direction out."""
    if norm is None:
        return F
    if norm.kind == "layer" and means:
        F = F.at[..., 0].set(0)
    return F * (norm.gain / jnp.sqrt(jnp.sum(F**2, axis=-1, keepdims=True) + norm.eps))


def drawn(rng_key: Array | None, frame: Frame, L: Float[Array, "network s k"]) -> Float[Array, "network s r_and_more"]:
    """Places of Y = L W: first along the frame, then along directions of their own."""
    networks, _, r = frame.F.shape
    L = turned(L)
    if frame.width is None:
        return jnp.concatenate([jnp.zeros((*L.shape[:2], r), L.dtype), L], axis=-1)
    assert rng_key is not None, "of a finite width"
    key_along, key_beyond = two_keys(rng_key)
    W = normals(key_along, (networks, L.shape[-1], r), L.dtype)
    if frame.width > r:
        W = jnp.concatenate([W, bartlett(key_beyond, frame.width - r, L.shape[-1], (networks,), L.dtype)], axis=-1)
    return L @ W * frame.width**-0.5


def added(frame: Frame, skip: Any, gain: Any, Y: Float[Array, "network s r_and_more"]) -> Frame:
    """Skip X + gain Y, in as few directions as tokens need."""
    X = jnp.pad(frame.F, [(0, 0), (0, 0), (0, Y.shape[-1] - frame.F.shape[-1])])
    F = skip * X + gain * Y
    first = 1 if frame.means else 0
    return replace(frame, F=jnp.concatenate([F[..., :first], turned(F[..., first:])], axis=-1))


def turned(F: Float[Array, "network s r"]) -> Float[Array, "network s q"]:
    """The same inner products in at most as many directions as there are tokens."""
    return F if F.shape[-1] <= F.shape[-2] else jnp.linalg.qr(F.mT, mode="r").mT


def one_minus_cosine(F: Float[Array, "network s r"]) -> Float[Array, "network s s"]:
    """Half the squared distance of tokens on the unit sphere: as exact for tokens that nearly coincide as for others."""
    u = F / jnp.sqrt(jnp.sum(F**2, axis=-1, keepdims=True))
    return jnp.sum((u[..., :, None, :] - u[..., None, :, :]) ** 2, axis=-1) / 2
