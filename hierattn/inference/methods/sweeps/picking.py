"""Rows, keys and heads picked by masks, and small products written out, networks on the last axis.

Chains pick differently, and XLA would gather and scatter.
"""

from functools import reduce

import jax.numpy as jnp
from jaxtyping import Array

from hierattn.inference.likelihood import total


def of_head(X: Array, h: Array) -> Array:
    """What belongs to a head of X (head, ..., network)."""
    return reduce(lambda found, a: jnp.where(h == a, X[a], found), range(1, len(X)), X[0])


def of_key(X: Array, e: Array) -> Array:
    """What belongs to a key of X (row, key, network), by a mask e."""
    return reduce(lambda found, k: jnp.where(e[k], X[:, k], found), range(X.shape[1]), jnp.zeros_like(X[:, 0]))


def of_rows(X: Array, rows: Array) -> Array:
    """Some rows of X (row, network)."""
    return reduce(
        lambda found, i: jnp.where((rows == i)[:, None], X[i], found),
        range(1, len(X)),
        jnp.broadcast_to(X[:1], (len(rows), *X.shape[1:])),
    )


def in_rows(x: Array, rows: Array, number: int) -> Array:
    """Rows x in their places, zeros elsewhere."""
    places = jnp.arange(number)[:, None]
    return total(lambda r: jnp.where(places == rows[r], x[r], 0.0), len(x))


def times(X: Array, v: Array) -> Array:
    """X (i, j, network) times v (j, network)."""
    return total(lambda j: X[:, j] * v[j], len(v))


def dot(x: Array, y: Array) -> Array:
    """Of (i, network) vectors."""
    return total(lambda i: x[i] * y[i], len(x))
