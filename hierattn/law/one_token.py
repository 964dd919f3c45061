"""The conditional variance v = Sigma_ii of one token, without its joint law: what all one-token statistics are made of.

    p_a = q_a sqrt(G_ii c_a) L z_a,    v = H^{-1} sum_a o_a^2 c'_a |w_a L|^2,    w_a the weights of p_a

with z_a standard normal, c_a, c'_a ~ chi2_{n_H} / n_H (1 at infinite head_dim) and G = L L' over the keys the token sees, the
correlation matrix of G in its place among scores where queries and keys are normed
(THEORY section 5): two chi-squares and a few normals for each head. Networks are on the last axis, and small matrices are
multiplied entry by entry: batched products are many times slower on a CPU.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.tracing import as_numpy
from hierattn.law.row import coupled, seen_keys, weighing_of
from hierattn.law.sampling import Recipe, Source, check_draws, draw_networks, power_of_two
from hierattn.layer.weighing import Weighing
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.sums import total
from hierattn.numerics.wishart import chi_square

CHUNK = 2**18  # numbers held at once: they stay in the cache
CHUNKS = 64  # drawn in one call


def stream(law: Source, rng_key: Array, networks: int, token: int = 0) -> Iterator[Float[Array | np.ndarray, " network"]]:
    """V of all networks in order, some chunks at a time. The first networks are the same however many are asked for."""
    check_draws(law.dtype, rng_key, 0, networks=networks)
    keys = seen_keys(law, token)
    chunk = power_of_two(CHUNK // (len(keys) * max(law.layer.heads, 4)))
    plain = law.layer.rotary is None and not coupled(law.layer)
    recipe = law.variances_of(token, keys, heads_of(law, token, keys), chunk) if plain else None
    if recipe is None:
        yield from (jnp.sum(drawn.F[:, token] ** 2, axis=-1) for drawn in draw_networks(law, rng_key, networks))
        return
    for first in range(0, networks, CHUNKS * chunk):
        wanted = min(networks - first, CHUNKS * chunk)
        yield as_numpy(draw_chunks(*recipe, rng_key, first // chunk, -(-wanted // chunk), (CHUNKS, chunk)))[:wanted]


@partial(jax.jit, static_argnames=("draw", "fixed", "shape"))
def draw_chunks(
    draw: Callable, fixed: tuple, numbers: tuple, rng_key: Array, first: Any, count: Any, shape: tuple[int, int]
) -> Float[Array, " network"]:
    """V of the networks of `count` chunks, then zeros, in the shape (chunks, networks of one) laid flat.

    All in one call: thousands of small calls scatter their buffers over memory.
    """

    def add_chunk(i: Any, v: Array) -> Array:
        return v.at[i].set(draw(jax.random.fold_in(rng_key, first + i), shape[1], *fixed, *numbers))

    return jax.lax.fori_loop(0, count, add_chunk, jnp.zeros(shape, numbers[0].q.dtype)).ravel()


class Heads(NamedTuple):
    """What tells heads apart for one token: scales, how scores (key, head, network) become weights; their dimension, if any."""

    q: Float[Array, " H"]
    o: Float[Array, " H"]
    weighing: Weighing
    dim: Any


def heads_of(law: Source, token: int, keys: np.ndarray) -> Heads:
    """The heads of a law, numbers only: other widths and dimensions of a head need no other compiled code."""
    layer = law.layer
    numbers: Any = layer.score_scale * layer.score_factor, layer.value_scale
    q, o = (x.astype(law.dtype) for x in numbers)
    weighing = weighing_of(law, token, keys).keys_first().astype(law.dtype)
    return Heads(q, o, weighing, None if layer.head_dim is None else float(layer.head_dim))


def given_factors(heads: Heads, G_ii: Any, L: Any, L_v: Any) -> Recipe:
    """Networks whose token has squared norm G_ii and sees keys with factor L, and values with factor L_v."""
    return Recipe(from_factors, (heads.dim is None or heads.dim >= 2,), (heads, G_ii, L, L_v))


def from_factors(
    rng_key: Array, networks: int, two: bool, heads: Heads, G_ii: Any, L: Float[Array, "m r _"], L_v: Float[Array, "m r _"]
) -> Float[Array, " network"]:
    """V of networks given their factors; head_dim is at least two or not."""
    H, key_z, key_c = len(heads.q), *jax.random.split(rng_key)
    z = normals(key_z, (L.shape[1], H, networks), L.dtype)
    c = jnp.ones((2, H, 1), L.dtype)
    if heads.dim is not None:
        c = chi_square(key_c, jnp.asarray(heads.dim, L.dtype), (2, H, networks), two) / heads.dim
    p = heads.q[:, None] * jnp.sqrt(G_ii * c[0]) * total(L.swapaxes(0, 1)[:, :, None] * z[:, None])
    w = heads.weighing.weights(p)
    u = total(total(w[:, None] * L_v[:, :, None]) ** 2)
    return jnp.mean(heads.o[:, None] ** 2 * c[1] * u, axis=0)
