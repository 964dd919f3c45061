"""The law at finite width: exact, without a single weight (THEORY section 5).

Gaussian weights see the inputs only through their Gram matrix G = X X' / n. So a network of width n is a draw of G, followed by
the law of finite head_dim given K = G: `FiniteWidth` draws G for the paper's random inputs, `given_inputs` takes X as it is.

    G = r W / n,    r ~ chi2_n / n,  W ~ Wishart_n(I)      inputs with phi(x) = x: cost independent of n
    G = X X' / n,   columns of X i.i.d. phi(sqrt(r) xi)    any other phi: columns are streamed, n x n matrices never made
"""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.finite import wide_inputs
from hierattn.finite.inputs import RandomInputs
from hierattn.law import one_token
from hierattn.law.hierarchy import Hierarchy
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal, from_draws
from hierattn.law.sampled import Sampled
from hierattn.law.sampling import Recipe, follow
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.sums import split, total
from hierattn.numerics.wishart import assemble, chi_square, entries_below, factor_last

BLOCK = 8  # columns of X held at once: they stay in the cache


class FiniteWidth(Sampled):
    """The exact law of `layer` in networks of finite width with random inputs. Draws like a `Law`.

    An infinite head_dim becomes the width, as in the paper. Two laws to compare with: `fixed_head_dim`, where only the width
    goes to infinity, and `limit`, where head_dim does too.
    """

    def __init__(self, layer: Architecture, inputs: RandomInputs) -> None:
        K = kernels.activation(inputs.activation, inputs.tokens)
        K_q = None if inputs.queries is None else kernels.activation(inputs.activation, inputs.queries)
        self.fixed_head_dim = Law(layer, K, K_q)
        self.limit = self.fixed_head_dim.with_infinite_head_dim()
        self.layer, self.inputs = layer.at_width(inputs.width), inputs

    def __repr__(self) -> str:
        H, n_H, n, s = self.layer.heads, self.layer.head_dim, self.inputs.width, self.inputs.tokens
        return f"FiniteWidth(width={n}, heads={H}, head_dim={n_H}, tokens={s}, scaling={self.layer.scaling!r})"

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.inputs.shape

    @property
    def dtype(self) -> Any:
        """JAX's default floating-point type."""
        return jnp.zeros(()).dtype

    def with_inputs(self, rng_key: Array, networks: int) -> Hierarchy:
        """The law given inputs drawn for these networks: a batch of factors L of G = L L'."""
        sizes = (self.inputs.tokens,) if self.inputs.queries is None else self.shape
        factors = [jnp.moveaxis(L, -1, 0) for L in gram_factors(rng_key, self.inputs, sizes, networks)]
        return Hierarchy.from_factors(self.layer, factors[-1], factors[0])

    def marginal(self, token: int = 0, networks: int = 2**20, seed: int = 0) -> Marginal:
        """The distribution of one token's outputs by Monte Carlo over this many networks: pdf, cdf, ppf, ... with errors."""
        return from_draws(self, token, networks, seed)

    def variances_of(self, token: int, keys: np.ndarray, heads: Any, networks: int) -> Recipe:
        """The recipe for conditional variances of one token that sees these keys; tokens are exchangeable."""
        m, cross, n = len(keys), self.inputs.queries is not None, self.inputs.width
        own = None if cross or token not in keys else int(np.searchsorted(keys, token))
        if self.inputs.linear and self.layer.heads < m:
            return wide_inputs.recipe(heads, n, own)
        # a token that is no key of its own comes before them, in a block of its own where queries are others
        gram = gram_recipe(self.inputs, (m,) if own is not None else (1, m) if cross else (1 + m,), networks)
        fixed = gram.draw, gram.fixed, own, heads.dim >= 2
        return Recipe(_from_random_factors, fixed, (heads, *gram.numbers))


def given_inputs(layer: Architecture, X: Any, X_q: Any = None) -> Law:
    """The exact law of networks with inputs X (tokens, width): that of finite head_dim with K = X X' / n."""
    K = kernels.from_inputs(X)
    return Law(layer.at_width(np.shape(X)[-1]), K, None if X_q is None else kernels.from_inputs(X_q))


def gram_factors(
    rng_key: Array, inputs: RandomInputs, sizes: tuple[int, ...], networks: int
) -> tuple[Float[Array, "_ _ {networks}"], ...]:
    """Factors L (token, r, network) of the Gram matrices of blocks of tokens, which have only the scale r in common."""
    return follow(rng_key, networks, *gram_recipe(inputs, sizes, networks))


def gram_recipe(inputs: RandomInputs, sizes: tuple[int, ...], networks: int) -> Recipe:
    """The recipe for `gram_factors`: other widths need no other compiled code."""
    n = inputs.width
    if inputs.linear:
        ranks = tuple(min(size, n) for size in sizes)
        return Recipe(_linear_factors, (sizes, ranks, n - max(ranks) >= 1), (float(n),))
    block = min(n, BLOCK)
    return Recipe(_streamed_factors, (inputs.phi, sizes, block, n >= 2), (n,))


def _linear_factors(rng_key: Array, networks: int, sizes: tuple, ranks: tuple, two: bool, n: Any) -> tuple[Array, ...]:
    """L = sqrt(r / n) B of every block, B B' ~ Wishart_n(I)."""
    key_chi, key_normal = jax.random.split(rng_key)
    dtype = jnp.zeros(()).dtype
    df = jnp.concatenate([n - jnp.zeros(1), *(n - jnp.arange(rank) for rank in ranks)]).astype(dtype)
    root_r, *diagonals = split(jnp.sqrt(chi_square(key_chi, df[:, None], (len(df), networks), two)), 1, *ranks)
    counts = [entries_below(size, rank) for size, rank in zip(sizes, ranks, strict=True)]
    below = split(normals(key_normal, (sum(counts), networks), dtype), *counts)
    return tuple(root_r / n * assemble(*parts) for parts in zip(diagonals, below, sizes, strict=True))


def _streamed_factors(
    rng_key: Array, networks: int, phi: Any, sizes: tuple, block: int, two: bool, n: Any
) -> tuple[Array, ...]:
    """Factors of X X' / n from the columns of X, a block of them at a time."""
    key_r, key_X = jax.random.split(rng_key)
    tokens, dtype = sum(sizes), jnp.zeros(()).dtype
    root_r = jnp.sqrt(chi_square(key_r, jnp.asarray(n, dtype), (networks,), two) / n)

    def add_block(i: Any, G: Array) -> Array:
        xi = normals(jax.random.fold_in(key_X, i), (block, tokens, networks), dtype)
        x = jax.lax.optimization_barrier(phi(root_r * xi))  # once, not for every product
        x = jnp.where((i * block + jnp.arange(block) < n)[:, None, None], x, 0)
        return G + total(x[:, :, None] * x[:, None])

    G = jax.lax.fori_loop(0, (n + block - 1) // block, add_block, jnp.zeros((tokens, tokens, networks), dtype)) / n
    return tuple(factor_last(G[a:b, a:b]) for a, b in pairwise(np.cumsum((0, *sizes)).tolist()))


def _from_random_factors(
    rng_key: Array,
    networks: int,
    draw_gram: Any,
    gram_fixed: tuple,
    own: int | None,
    two: bool,
    heads: Any,
    *gram_numbers: Any,
) -> Float[Array, " {networks}"]:
    """Conditional variances of networks whose token is key `own`, or none of its keys."""
    key_G, key_heads = jax.random.split(rng_key)
    factors = draw_gram(key_G, networks, *gram_fixed, *gram_numbers)
    G_ii = total(factors[0][own or 0] ** 2)
    L = factors[0][1:] if own is None and len(factors) == 1 else factors[-1]
    return one_token.from_factors(key_heads, networks, two, heads, G_ii, L, L)
