"""Random factors of finite head dimensions: chi-squares and Bartlett's factor of a Wishart matrix, exact and whole-array."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.numerics.random_numbers import normals, uniforms

FOLD = 16  # entries that share what is proposed after the first round


def chi_square(
    rng_key: Array, df: Float[Array | np.ndarray, "..."], shape: tuple[int, ...], at_least_two: bool = False
) -> Float[Array, "..."]:
    """Chi-square draws with df > 0 degrees of freedom (broadcast to shape), in the dtype of df.

    That there are at least two of them saves work; of a concrete df it is seen, of an abstract one it must be said.

    Marsaglia and Tsang (2000) on whole arrays: the first round proposes for all entries at once, later ones for one open entry
    in every `FOLD`, until none is. JAX's own gamma works entry by entry and is many times slower
    (analysis/benchmarks/chi_square.py).
    """
    boosted = df < 2  # below two degrees of freedom: draw with two more, then shrink
    none_boosted = at_least_two or (isinstance(df, np.ndarray) and not boosted.any())
    fold = math.gcd(math.prod(shape), FOLD)
    d = jnp.broadcast_to(df / 2 + boosted, shape).reshape(fold, -1) - 1 / 3

    def propose(key: Array, d: Array) -> Array:
        """Gamma draws, zero where they are not accepted; of all random numbers in one call, which is sooner compiled."""
        x, u = uniforms(key, (2, *d.shape), d.dtype, minval=float(jnp.finfo(d.dtype).epsneg) - 1)
        x = 2**0.5 * jax.lax.erf_inv(x)
        v = jnp.maximum(1 + x / jnp.sqrt(9 * d), 0) ** 3
        return jnp.where(jnp.log((1 - u) / 2) < x**2 / 2 + d * (1 - v + jnp.log(v)), d * v, 0)

    def fill(state: tuple) -> tuple:
        """Propose again for the first entry that is open of every `fold`."""
        rounds, gamma = state
        chosen = jnp.argmax(gamma == 0, axis=0)
        again = propose(jax.random.fold_in(key_again, rounds), jnp.take_along_axis(d, chosen[None], axis=0)[0])
        here = (jnp.arange(fold)[:, None] == chosen) & (gamma == 0)
        return rounds + 1, jnp.where(here, again, gamma)

    key_first, key_again, key_boost = jax.random.split(rng_key, 3)
    state = 0, propose(key_first, d)
    gamma = jax.lax.while_loop(lambda state: (state[1] == 0).any(), fill, state)[1].reshape(shape)
    if none_boosted:
        return 2 * gamma
    shrink = jnp.exp(jnp.log1p(-uniforms(key_boost, shape, df.dtype)) / (df / 2))
    return 2 * gamma * jnp.where(boosted, shrink, 1)


def bartlett(rng_key: Array, df: int, size: int, batch: tuple[int, ...], dtype: Any) -> Float[Array, "*batch size r"]:
    """Factors B with B B' ~ Wishart_df(I_size): lower trapezoidal, r = min(df, size) columns.

    Diagonal sqrt(chi2_{df - i}), i = 0 .. r - 1; standard normal below it (Bartlett 1933; THEORY section 5).
    """
    r = min(df, size)
    return _bartlett(rng_key, np.asarray(df - np.arange(r), dtype), size, batch, df - r >= 1)


@partial(jax.jit, static_argnames=("size", "batch", "at_least_two"))
def _bartlett(
    rng_key: Array, df: Array, size: int, batch: tuple[int, ...], at_least_two: bool
) -> Float[Array, "*batch size r"]:
    """The same for degrees of freedom of the diagonal as numbers: others need no other compiled code."""
    (r,), (key_diagonal, key_below) = df.shape, jax.random.split(rng_key)
    diagonal = jnp.sqrt(chi_square(key_diagonal, df, (*batch, r), at_least_two))
    below = jnp.tril(normals(key_below, (*batch, size, r), df.dtype), -1)
    return below + diagonal[..., None, :] * jnp.eye(size, r, dtype=df.dtype)


def assemble(
    diagonal: Float[Array, "r network"], below: Float[Array, "k network"], size: int
) -> Float[Array, "size r network"]:
    """Lower trapezoidal matrices from their diagonal and the entries below it, row by row; networks on the last axis.

    Where small matrices are computed with entry by entry, as many networks as possible side by side are fastest.
    """
    r, networks = diagonal.shape
    i, j = np.tril_indices(size, -1, r)
    place = np.zeros((size, r), int)  # where in (zero, diagonal, below) an entry is found
    place[np.arange(r), np.arange(r)] = 1 + np.arange(r)
    place[i, j] = 1 + r + np.arange(len(i))
    return jnp.concatenate([jnp.zeros((1, networks), diagonal.dtype), diagonal, below])[place]


def entries_below(size: int, r: int) -> int:
    """Entries below the diagonal of a (size, r) matrix."""
    return r * size - r * (r + 1) // 2


def factor_last(G: Float[Array, "s s network"]) -> Float[Array, "s s network"]:
    """L with L L' = G for positive semidefinite G, networks on the last axis.

    Cholesky's factor with pivots: every column takes the largest part of a token, relative to its norm, that earlier ones have
    left over, and is zero where that is rounding (tokens that are zero, or in the span of others). Two tokens need no pivots,
    which take most of the time.
    """
    s = G.shape[0]
    if s == 2:
        first = jnp.sqrt(G[0, 0])
        below = jnp.where(first > 0, G[1, 0] / jnp.where(first > 0, first, 1), 0)
        return jnp.stack([jnp.stack([first, 0 * first]), jnp.stack([below, jnp.sqrt(jnp.maximum(G[1, 1] - below**2, 0))])])
    norm = jnp.sqrt(jnp.diagonal(G).T)
    scale = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)

    def column(k: Any, state: tuple) -> tuple:
        rest, L = state
        left = jnp.diagonal(rest).T
        chosen = jnp.arange(s)[:, None] == jnp.argmax(left, axis=0)
        pivot, below = jnp.max(left, axis=0), jnp.sum(rest * chosen, axis=1)
        below = jnp.where(pivot > 4 * s * jnp.finfo(G.dtype).eps, below * jax.lax.rsqrt(jnp.maximum(pivot, 1e-30)), 0)
        return rest - below[:, None] * below[None], L.at[:, k].set(below)

    state = G * scale[:, None] * scale[None], jnp.zeros_like(G)
    return norm[:, None] * jax.lax.fori_loop(0, s, column, state)[1]
