"""Latent attention drawn weight by weight: the ground truth, which knows nothing of Gram matrices."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.layer.latent import LatentAttention
from hierattn.layer.positions import rotate
from hierattn.numerics.random_numbers import normals


def draw_latent_layer(
    rng_key: Array, layer: LatentAttention, X: Float[Array, "s n"], coordinates: int
) -> tuple[Float[Array, "H s s"], Float[Array, "s coordinate"]]:
    """Scores and outputs of one network with inputs X."""
    (_, n), H, n_H, n_V = X.shape, layer.heads, layer.head_dim, layer.value_dim
    names = ("key_rank", "query_rank")
    if any(getattr(layer, name) == math.inf for name in names):
        raise unusable("key_rank", "latents of finite dimension to draw weights of", "math.inf")
    keys = iter(jax.random.split(rng_key, 8))

    def weights(sigma: float, *shape: int) -> Array:
        """Entries N(0, sigma^2 / fan_in), the last axis but one."""
        return sigma * shape[-2] ** -0.5 * normals(next(keys), shape)

    def normed(c: Array) -> Array:
        return c / jnp.sqrt(jnp.mean(c**2, axis=-1, keepdims=True) + layer.eps)

    c = normed(X @ weights(layer.sigma_key_latent, n, layer.key_rank))
    source = X
    if layer.query_rank is not None:
        source = normed(X @ weights(layer.sigma_query_latent, n, layer.query_rank))
    products = (source @ weights(layer.sigma_q, H, source.shape[-1], n_H)) @ (
        c @ weights(layer.sigma_k, H, c.shape[-1], n_H)
    ).mT
    if layer.rotary is not None:
        n_R = 2 * len(layer.rotary)
        turned = rotate(source @ weights(layer.sigma_q, H, source.shape[-1], n_R), layer.rotary)
        products = products + turned @ rotate(X @ weights(layer.sigma_r, n, n_R), layer.rotary).T
    p = products * layer.dim**-0.5
    values = c @ weights(layer.sigma_v, H, c.shape[-1], n_V)
    outputs = layer.values.attention(p) @ values @ weights(layer.sigma_o, H, n_V, coordinates)
    return p, jnp.sum(outputs, axis=0) * H**-0.5


def largest_matrix(layer: LatentAttention, width: int, coordinates: int) -> int:
    """Numbers of the largest set of weights that is drawn at once."""
    into = max(int(rank) for rank in (layer.key_rank, layer.query_rank or width) if rank != math.inf)
    return max(width * into, into * layer.heads * max(layer.dim, layer.value_dim), layer.heads * layer.value_dim * coordinates)
