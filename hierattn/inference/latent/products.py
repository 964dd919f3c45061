"""Products of small matrices, one per network, networks on the last axis, whose gradients are products again.

Sums over tokens are written out: many times faster on a CPU than batched small matrices.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

WRITTEN_OUT = 16  # terms of a sum at most; longer ones are loops


def total(term: Callable[[Any], Array], number: int) -> Array:
    """The sum of term(0), term(1), ...: written out if it is short."""
    if number <= WRITTEN_OUT:
        return sum((term(j) for j in range(1, number)), term(0))
    return jax.lax.fori_loop(1, number, lambda j, x: x + term(j), term(0))


@jax.custom_vjp
def product(X: Float[Array, "... i c x"], Y: Float[Array, "... c j y"]) -> Float[Array, "... i j network"]:
    """X Y; leading axes and networks are broadcast."""
    return whole(total(lambda c: X[..., :, c, None, :] * Y[..., None, c, :, :], X.shape[-2]))


@jax.custom_vjp
def gram(F: Float[Array, "H i c network"]) -> Float[Array, "i i network"]:
    """The sum of F F' over heads."""
    return over_heads(F, transposed(F))


def over_heads(X: Float[Array, "H i c x"], Y: Float[Array, "H c j y"]) -> Float[Array, "i j network"]:
    """The sum of X Y over heads."""
    return jnp.sum(product(X, Y), axis=0)


def whole(x: Array) -> Array:
    """Computed once: XLA would fuse a product into all that uses it, and compute it there again and again."""
    return jax.lax.optimization_barrier(x)


def transposed(X: Float[Array, "*batch i j network"]) -> Float[Array, "*batch j i network"]:
    """X'."""
    return jnp.swapaxes(X, -3, -2)


def summed(x: Array, shape: tuple[int, ...]) -> Array:
    """The gradient in an array of this shape, which was broadcast."""
    x = jnp.sum(x, axis=tuple(range(x.ndim - len(shape))))
    return jnp.sum(x, axis=tuple(i for i, n in enumerate(shape) if n < x.shape[i]), keepdims=True)


def _back(kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    X, Y = kept
    return summed(product(g, transposed(Y)), X.shape), summed(product(transposed(X), g), Y.shape)


product.defvjp(lambda X, Y: (product(X, Y), (X, Y)), _back)
gram.defvjp(lambda F: (gram(F), F), lambda F, g: (product((g + transposed(g))[None], F),))
