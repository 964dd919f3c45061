"""Positions: rotary embeddings turn queries and keys by angles that grow with the token's place."""

from numbers import Integral

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable


def rotary_frequencies(head_dim: int, base: float = 10000.0) -> Float[np.ndarray, " B"]:
    """The usual frequencies base^{-2b/head_dim}, b = 0 .. head_dim/2 - 1, of rotary position embeddings."""
    if not isinstance(head_dim, Integral) or head_dim < 2 or head_dim % 2:
        raise unusable("head_dim", "an even number of at least 2 for rotary embeddings", repr(head_dim))
    return base ** (-np.arange(0, head_dim, 2) / head_dim)


def rotate(x: Float[Array, "*batch s n_H"], frequencies: Float[Array | np.ndarray, " B"]) -> Float[Array, "*batch s n_H"]:
    """Turn the b-th pair of coordinates of the token at position i by the angle theta_b i."""
    angle = jnp.arange(x.shape[-2])[:, None] * jnp.asarray(frequencies, x.dtype)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    even, odd = x[..., 0::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
