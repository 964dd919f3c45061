"""The conditional variance v = Sigma_ii of one token, without its joint law: what all one-token statistics are made of.

    p_a = q_a sqrt(G_ii c_a) L z_a,    v = H^{-1} sum_a o_a^2 c'_a |w_a L|^2,    w_a = softmax(p_a + b_a)

with z_a standard normal, c_a, c'_a ~ chi2_{n_H} / n_H (1 at infinite head_dim) and G = L L' over the keys the token sees
(THEORY section 5): two chi-squares and a few normals a head. Networks are on the last axis, and small matrices are multiplied
entry by entry: batched products are many times slower on a CPU.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.base.tracing import as_numpy
from hierattn.law.sampling import Recipe, Sampled, check_draws, draw_networks, power_of_two
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals
from hierattn.numerics.wishart import assemble, chi_square, entries_below, factor_last

CHUNK = 2**18  # numbers held at once: they stay in the cache
CHUNKS = 64  # drawn in one call
FEW = 8  # terms of a sum


def stream(law: Sampled, rng_key: Array, networks: int, token: int = 0) -> Iterator[Float[Array | np.ndarray, " network"]]:
    """V of all networks in order, some chunks at a time. The first networks are the same however many are asked for."""
    check_draws(law.dtype, rng_key, 0, networks=networks)
    keys = seen_keys(law, token)
    if law.layer.rotary is not None or (law.layer.head_dim is not None and coupled(law.layer)):
        yield from (jnp.sum(drawn.F[:, token] ** 2, axis=-1) for drawn in draw_networks(law, rng_key, networks))
        return
    chunk = power_of_two(CHUNK // (len(keys) * max(law.layer.heads, 4)))
    recipe = law.variances_of(token, keys, heads_of(law, token, keys), chunk)
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


def seen_keys(law: Sampled, token: int) -> np.ndarray:
    """The keys a token may look at."""
    s_q, s_k = law.shape
    if not isinstance(token, (int, np.integer)) or isinstance(token, bool) or not 0 <= token < s_q:
        raise unusable("token", f"a whole number from 0 to {s_q - 1}", repr(token))
    return np.flatnonzero(law.layer.allowed(s_q, s_k)[token])


def bias_row(law: Sampled, token: int, keys: np.ndarray) -> Float[np.ndarray, "H m"]:
    """The bias of a token's scores, one row a head."""
    bias = np.zeros(law.shape) if law.layer.bias is None else law.layer.bias
    return np.broadcast_to(bias, (law.layer.heads, *law.shape))[:, token, keys]


def coupled(layer: Architecture, K: np.ndarray | None = None) -> bool:
    """At finite head_dim: do heads share values, or a row's scores more than one chi-square? (Random G: no K is given.)"""
    turned = layer.rotary is not None and (K is None or bool(np.any(np.diag(np.diagonal(K)) != K)))
    return layer.group_size > 1 or turned


class Heads(NamedTuple):
    """What tells heads apart for one token: scales of scores and values, bias; and their dimension (None is infinite)."""

    q: Float[Array, " H"]
    o: Float[Array, " H"]
    bias: Float[Array, "H m"]
    dim: Any


def heads_of(law: Sampled, token: int, keys: np.ndarray) -> Heads:
    """The heads of a law, numbers only: other widths and dimensions of a head need no other compiled code."""
    layer = law.layer
    numbers: Any = layer.score_scale * layer.score_factor, layer.value_scale, bias_row(law, token, keys)
    q, o, bias = (x.astype(law.dtype) for x in numbers)
    return Heads(q, o, bias, None if layer.head_dim is None else float(layer.head_dim))


def given_factors(heads: Heads, G_ii: Any, L: Any, identity: bool) -> Recipe:
    """Networks whose token has squared norm G_ii and sees keys with factor L; with identity scores or softmax."""
    return Recipe(from_factors, (identity, heads.dim is None or heads.dim >= 2), (heads, G_ii, L))


def from_factors(
    rng_key: Array, networks: int, identity: bool, two: bool, heads: Heads, G_ii: Any, L: Float[Array, "m r _"]
) -> Float[Array, " network"]:
    """V of networks given their factors; head_dim is at least two or not."""
    H, key_z, key_c = len(heads.q), *jax.random.split(rng_key)
    z = normals(key_z, (L.shape[1], H, networks), L.dtype)
    c = jnp.ones((2, H, 1), L.dtype)
    if heads.dim is not None:
        c = chi_square(key_c, jnp.asarray(heads.dim, L.dtype), (2, H, networks), two) / heads.dim
    p = heads.q[:, None] * jnp.sqrt(G_ii * c[0]) * total(L.swapaxes(0, 1)[:, :, None] * z[:, None])
    w = _weights(p, heads.bias, identity)
    u = total(total(w[:, None] * L[:, :, None]) ** 2)
    return jnp.mean(heads.o[:, None] ** 2 * c[1] * u, axis=0)


def wide_inputs(heads: Heads, n: int, own: int | None, identity: bool) -> Recipe:
    """As `given_factors`, for m keys with inputs sqrt(r) xi_j, xi_j ~ N(0, I_n), and fewer heads than keys.

    L z_a is X g_a / sqrt(n) with g_a ~ N(0, I_n). In a basis Q of all g_a, g_a = Q B_a with B Bartlett's factor of
    Wishart_n(I_H), inputs are normals Z = xi Q. What is left of xi enters through the weighted sums of heads alone, as normals
    e along the token's own remainder (of length rho, if it is key `own`) and a factor D of a Wishart matrix of all other
    directions. So H numbers a key suffice.
    """
    H = len(heads.q)
    h, d = min(H, n), min(H, max(n - H - 1, 0))
    two = min(n - h + 1, n - h if n > h else 2, n - h - d if d else 2, int(heads.dim)) >= 2
    return Recipe(from_wide_inputs, (h, n > h, d, own, identity, two), (heads, float(n)))


def from_wide_inputs(
    rng_key: Array,
    networks: int,
    h: int,
    remainder: bool,
    d: int,
    own: int | None,
    identity: bool,
    two: bool,
    heads: Heads,
    n: Any,
) -> Float[Array, " network"]:
    """V of networks with wide inputs: h directions of heads, d of the remainder; chi-squares of at least two or not."""
    (H, m), dtype = heads.bias.shape, heads.bias.dtype
    key_chi, key_normal = jax.random.split(rng_key)
    df = jnp.concatenate([n - jnp.zeros(1), n - jnp.arange(h), n - h + jnp.zeros(remainder), n - h - 1 - jnp.arange(d)])
    df = jnp.concatenate([df, heads.dim + jnp.zeros(2 * H)]).astype(dtype)
    chi = chi_square(key_chi, df[:, None], (len(df), networks), two)
    r, B_diagonal, rho_squared, D_diagonal, c = split(chi, 1, h, remainder, d, 2 * H)
    tokens = m + (own is None)  # a token that is no key of its own comes last
    sizes = h * tokens, entries_below(H, h), H * remainder, entries_below(H, d)
    Z, B_below, e, D_below = split(normals(key_normal, (sum(sizes), networks), dtype), *sizes)
    Z, B, r = Z.reshape(h, tokens, networks), assemble(jnp.sqrt(B_diagonal), B_below, H), r[0] / n
    me = m if own is None else own
    G_ii = r * (total(Z[:, me] ** 2) + jnp.sum(rho_squared, axis=0)) / n
    Z = Z[:, :m]
    scale = heads.q[:, None] * jnp.sqrt(G_ii * c[:H] / heads.dim * r / n)
    w = _weights(scale * total(Z[:, :, None] * B.swapaxes(0, 1)[:, None]), heads.bias, identity)
    u = total(total(w[:, None] * Z.swapaxes(0, 1)[:, :, None]) ** 2)
    if remainder:
        others = w if own is None else w.at[own].set(0)
        C = factor_last(total(others[:, :, None] * others[:, None])).swapaxes(0, 1)
        along = total(C * e[:, None]) + (0 if own is None else w[own] * jnp.sqrt(rho_squared))
        u += along**2
    if d:
        D = assemble(jnp.sqrt(D_diagonal), D_below, H)
        u += total(total(C[:, None] * D[:, :, None]) ** 2)
    return jnp.mean(heads.o[:, None] ** 2 * c[H:] / heads.dim * r * u / n, axis=0)


def split(x: Array, *sizes: int) -> list[Array]:
    """Parts of these sizes along the first axis."""
    return jnp.split(x, np.cumsum(sizes)[:-1])


def total(x: Float[Array, "k *rest"]) -> Float[Array, "*rest"]:
    """The sum over the first axis: terms one by one where they are few, which a CPU does side by side for many networks."""
    return sum(x[1:], start=x[0]) if len(x) <= FEW else jnp.sum(x, axis=0)


def _weights(p: Float[Array, "m H network"], bias: Float[Array, "H m"], identity: bool) -> Float[Array, "m H network"]:
    p = p + bias.T[..., None]
    return p if identity else jax.nn.softmax(p, axis=0)
