"""Sums and pieces of arrays with networks on the last axis, where small matrices are computed with entry by entry."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FEW = 8  # terms of a sum


def split(x: Array, *sizes: int) -> list[Array]:
    """Parts of these sizes along the first axis."""
    return jnp.split(x, np.cumsum(sizes)[:-1])


def total(x: Float[Array, "k *rest"]) -> Float[Array, "*rest"]:
    """The sum over the first axis: terms one by one where they are few, which a CPU does side by side for many networks."""
    return sum(x[1:], start=x[0]) if len(x) <= FEW else jnp.sum(x, axis=0)
