"""The conditional variance v = Sigma_ii of one token, without its joint law: what all one-token statistics are made of.

    p_a = q_a sqrt(G_ii c_a) L z_a,    v = H^{-1} sum_a o_a^2 c'_a |w_a L|^2,    w_a = softmax(p_a + b_a)

with z_a standard normal, c_a, c'_a ~ chi2_{n_H} / n_H (1 at infinite head_dim) and G = L L' over the keys the token sees
(THEORY section 5): two chi-squares and a few normals a head. Networks are on the last axis, and small matrices are multiplied
entry by entry: batched products are many times slower on a CPU.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.architecture import Architecture
from hierattn.errors import unusable
from hierattn.sampling import Sampled, check_draws, draw_networks, power_of_two
from hierattn.wishart import bartlett_last, chi_square, cholesky_last

CHUNK = 2**19  # numbers held at once: they stay in the cache


def stream(law: Sampled, rng_key: Array, networks: int, token: int = 0) -> Iterator[Float[Array, " network"]]:
    """V of all networks in order, a chunk at a time. The first networks are the same however many are asked for."""
    check_draws(law, rng_key, 0, networks=networks)
    keys = seen_keys(law, token)
    if law.layer.rotary is not None or (law.layer.head_dim is not None and coupled(law.layer)):
        yield from (jnp.sum(drawn.F[:, token] ** 2, axis=-1) for drawn in draw_networks(law, rng_key, networks))
        return
    chunk = power_of_two(CHUNK // (len(keys) * max(law.layer.heads, 4)))
    bias = jnp.asarray(bias_row(law, token, keys), law.dtype)
    for c, start in enumerate(range(0, networks, chunk)):
        v = law.draw_variances(jax.random.fold_in(rng_key, c), chunk, token, keys, bias)
        yield v if networks - start >= chunk else v[: networks - start]


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


@partial(jax.jit, static_argnames=("networks",))
def from_factors(layer: Any, rng_key: Array, G_ii: Array, L: Float[Array, "m r _"], bias: Array, networks: int) -> Array:
    """V of some networks whose token sees keys with factor L and has squared norm G_ii."""
    key_z, key_heads = jax.random.split(rng_key)
    z = jax.random.normal(key_z, (L.shape[1], layer.heads, networks), L.dtype)
    scale, values = _head_scales(layer, key_heads, G_ii, networks)
    w = _weights(layer, scale * jnp.sum(L.swapaxes(0, 1)[:, :, None] * z[:, None], axis=0), bias)
    u = jnp.sum(jnp.sum(w[:, None] * L[:, :, None], axis=0) ** 2, axis=0)
    return jnp.mean(values * u, axis=0)


@partial(jax.jit, static_argnames=("n", "m", "own", "networks"))
def from_wide_inputs(layer: Any, rng_key: Array, n: int, m: int, own: int | None, bias: Array, networks: int) -> Array:
    """As `from_factors`, for m keys with inputs sqrt(r) xi_j, xi_j ~ N(0, I_n), and fewer heads than keys.

    L z_a is X g_a / sqrt(n) with g_a ~ N(0, I_n). In a basis Q of all g_a, g_a = Q B_a with B Bartlett's factor of
    Wishart_n(I_H), inputs are normals Z = xi Q. What is left of xi enters through the weighted sums of heads alone, as normals
    along the token's own remainder (of length rho, if it is key `own`) and a Wishart matrix of all other directions. So H
    numbers a key suffice.
    """
    H, h, dtype = layer.heads, min(layer.heads, n), bias.dtype
    key_r, key_B, key_Z, key_rho, key_e, key_D, key_heads = jax.random.split(rng_key, 7)
    r = chi_square(key_r, np.asarray(n, dtype), (networks,)) / n
    B = bartlett_last(key_B, n, H, networks, dtype)
    Z = jax.random.normal(key_Z, (h, m + (own is None), networks), dtype)  # a token that is no key of its own comes last
    rho_squared = chi_square(key_rho, np.asarray(n - h, dtype), (networks,)) if n > h else jnp.zeros(networks, dtype)
    me = m if own is None else own
    G_ii = r * (jnp.sum(Z[:, me] ** 2, axis=0) + rho_squared) / n
    scale, values = _head_scales(layer, key_heads, G_ii, networks)
    Z, xi_g = Z[:, :m], jnp.sum(Z[:, :m, None] * B.swapaxes(0, 1)[:, None], axis=0)
    w = _weights(layer, scale * jnp.sqrt(r / n) * xi_g, bias)
    u = jnp.sum(jnp.sum(w[:, None] * Z.swapaxes(0, 1)[:, :, None], axis=0) ** 2, axis=0)
    if n > h:
        others = w if own is None else w.at[own].set(0)
        C = cholesky_last(jnp.sum(others[:, :, None] * others[:, None], axis=0)).swapaxes(0, 1)
        along = jnp.sum(C * jax.random.normal(key_e, (H, 1, networks), dtype), axis=0)
        u += (along + (0 if own is None else w[own] * jnp.sqrt(rho_squared))) ** 2
        if n > h + 1:
            D = bartlett_last(key_D, n - h - 1, H, networks, dtype)
            u += jnp.sum(jnp.sum(C[:, None] * D[:, :, None], axis=0) ** 2, axis=0)
    return jnp.mean(values * r * u / n, axis=0)


def _head_scales(layer: Any, rng_key: Array, G_ii: Array, networks: int) -> tuple[Array, Array]:
    """Of every head the scale of the scores given the token's norm, and the factor o_a^2 c'_a of its values."""
    key_c, key_values = jax.random.split(rng_key)
    q, o = (jnp.asarray(x, G_ii.dtype)[:, None] for x in (layer.score_scale * layer.score_factor, layer.value_scale))
    if layer.head_dim is None:
        return q * jnp.sqrt(G_ii), o**2
    df = np.asarray(layer.head_dim, G_ii.dtype)
    c, c_values = (chi_square(key, df, (layer.heads, networks)) / df for key in (key_c, key_values))
    return q * jnp.sqrt(G_ii * c), o**2 * c_values


def _weights(layer: Any, p: Float[Array, "m H network"], bias: Float[Array, "H m"]) -> Float[Array, "m H network"]:
    p = p + bias.T[..., None]
    return p if layer.score_function == "identity" else jax.nn.softmax(p, axis=0)
