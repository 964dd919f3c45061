"""Normals and uniforms of any shape: those that JAX draws, sooner compiled and drawn.

JAX numbers the entries of an array through and hashes the numbers. Over many short axes that numbering is most of the work:
for (8192, 2, 4, 4) five times the compile time and twice the time of the same numbers drawn in one long axis.
"""

import math
from typing import Any

import jax
from jaxtyping import Array, Float

LONG = 64  # an axis that is no burden


def normals(rng_key: Array, shape: tuple[int, ...], dtype: Any = float) -> Float[Array, "..."]:
    """Standard normals: jax.random.normal(rng_key, shape, dtype)."""
    return jax.random.normal(rng_key, _folded(shape), dtype).reshape(shape)


def uniforms(rng_key: Array, shape: tuple[int, ...], dtype: Any = float, minval: Any = 0.0) -> Float[Array, "..."]:
    """Uniforms between minval and 1: jax.random.uniform(rng_key, shape, dtype, minval)."""
    return jax.random.uniform(rng_key, _folded(shape), dtype, minval).reshape(shape)


def _folded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with at most two axes, whose entries come in the same order."""
    if shape and shape[-1] >= LONG:
        return math.prod(shape[:-1]), shape[-1]
    return (math.prod(shape),)
