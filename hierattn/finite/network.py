"""Finite networks drawn weight by weight: the ground truth, which knows nothing of the theory.

    Y = H^{-1/2} sum_a A_a (X W^{V,a}) W^{O,a},    A_a = softmax over keys of (X W^{Q,a}) (X W^{K,a})' / sqrt(n_H)

or whatever else the description says of queries, keys and scores, step by step as real layers do it.

All weights are independent, with entries N(0, sigma^2 / fan_in). Networks are drawn in batches that fit a memory ceiling, and
within a network one matrix at a time; of W^O only the columns that lead to the coordinates asked for. Network m depends on
(rng_key, m) alone: batches, ceilings and numbers of networks do not change it.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import UnsafeInputError, as_array, check_counts, check_key, unusable
from hierattn.finite.inputs import RandomInputs
from hierattn.finite.latent_network import draw_latent_layer, largest_matrix
from hierattn.layer.architecture import Architecture
from hierattn.layer.latent import LatentAttention
from hierattn.layer.positions import rotate
from hierattn.numerics.random_numbers import normals

Layer = Architecture | LatentAttention
CEILING = 2**28  # bytes of weights held at once
COPIES = 3  # of a weight matrix while it is made
TOO_LARGE = 2**33  # bytes of one of them


class Simulated(NamedTuple):
    """Networks drawn together: scores p and outputs y."""

    p: Float[Array, "network H q k"]
    y: Float[Array, "network q coordinate"]


def simulate(
    rng_key: Array, layer: Layer, inputs: Any, networks: int, coordinates: int = 1, query_inputs: Any = None
) -> Simulated:
    """Scores and outputs of explicit networks; see `stream`."""
    parts = list(stream(rng_key, layer, inputs, networks, coordinates, query_inputs))
    return Simulated(*(jnp.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def stream(
    rng_key: Array, layer: Layer, inputs: Any, networks: int, coordinates: int = 1, query_inputs: Any = None
) -> Iterator[Simulated]:
    """The networks in order, batch by batch.

    - inputs: RandomInputs, redrawn for every network, or an array X (tokens, width) that all of them share
    - query_inputs: X of the queries (queries, width) where they differ from it (cross-attention)
    """
    check_key(rng_key)
    check_counts(networks=networks, coordinates=coordinates)
    if isinstance(inputs, RandomInputs):
        if query_inputs is not None:
            raise unusable("query_inputs", "None with random inputs", "an array", "use RandomInputs(queries=...)")
        given, width, shape = None, inputs.width, inputs.shape
    else:
        X = _checked("inputs", inputs)
        X_q = X if query_inputs is None else _checked("query_inputs", query_inputs)
        if X_q.shape[1] != X.shape[1]:
            raise unusable("query_inputs", f"the width {X.shape[1]} of the inputs", X_q.shape[1])
        given, inputs, width, shape = (X_q, X), None, X.shape[1], (len(X_q), len(X))
    layer.allowed(*shape)
    if isinstance(layer, LatentAttention) and shape[0] != shape[1]:
        raise unusable("query_inputs", "None for latent attention, which has one sequence", "others")
    if layer.bias is not None and layer.bias.shape[-2:] != shape:
        raise unusable("bias", f"shape {shape} (queries, keys) or one per head", layer.bias.shape)
    batch = min(networks, batch_size(layer, width, coordinates, sum(shape)))
    return _batches(rng_key, layer.at_width(width), inputs, given, batch, networks, coordinates)


def batch_size(layer: Layer, width: int, coordinates: int, tokens: int) -> int:
    """Networks drawn at once under the memory ceiling: the largest weights, or queries and keys of all heads."""
    if isinstance(layer, LatentAttention):
        largest = largest_matrix(layer, width, coordinates)
    else:
        n_H = layer.head_dim or width
        largest = max(width * width, width * n_H, n_H * coordinates, layer.heads * n_H * tokens)
    needed = COPIES * largest * jnp.zeros(()).dtype.itemsize
    if needed > TOO_LARGE:
        remedy = "FiniteWidth draws the same distribution without weights"
        raise UnsafeInputError(f"width: expected weights of at most {TOO_LARGE:.2g} bytes, got {needed:.2g}; {remedy}")
    return max(1, CEILING // needed)


def _batches(rng_key: Array, layer: Layer, inputs: Any, given: Any, batch: int, networks: int, coordinates: int) -> Any:
    for start in range(0, networks, batch):
        drawn = _draw(rng_key, layer, inputs, given, start, batch, coordinates)
        yield drawn if networks - start >= batch else Simulated(*(x[: networks - start] for x in drawn))


@partial(jax.jit, static_argnames=("inputs", "batch", "coordinates"))
def _draw(
    rng_key: Array,
    layer: Layer,
    inputs: RandomInputs | None,
    given: Any,
    start: Any,
    batch: int,
    coordinates: int,
) -> Simulated:
    def one(m: Array) -> tuple[Array, Array]:
        key_inputs, key_layer = jax.random.split(jax.random.fold_in(rng_key, m))
        X_q, X = given if inputs is None else draw_inputs(key_inputs, inputs)
        if isinstance(layer, LatentAttention):
            return draw_latent_layer(key_layer, layer, X, coordinates)
        return draw_layer(key_layer, layer, X_q, X, coordinates)

    return Simulated(*jax.vmap(one)(start + jnp.arange(batch)))


def draw_inputs(rng_key: Array, inputs: RandomInputs) -> tuple[Float[Array, "q n"], Float[Array, "k n"]]:
    """X of the queries and of the keys for one network, each token through its own n x n matrix."""
    n, tokens = inputs.width, inputs.tokens + (inputs.queries or 0)
    key_h, key_W = jax.random.split(rng_key)
    h = normals(key_h, (n,))
    X = inputs.phi(jax.lax.map(lambda key: weights(key, 1.0, n, n).T @ h, jax.random.split(key_W, tokens)))
    return (X, X) if inputs.queries is None else (X[: inputs.queries], X[inputs.queries :])


def draw_layer(
    rng_key: Array, layer: Architecture, X_q: Float[Array, "q n"], X: Float[Array, "k n"], coordinates: int
) -> tuple[Float[Array, "H q k"], Float[Array, "q coordinate"]]:
    """Scores and outputs of one network with inputs X."""
    n, n_H, groups = X.shape[-1], layer.head_dim or X.shape[-1], layer.groups
    sigma_q, sigma_k, sigma_v, sigma_o = (
        jnp.broadcast_to(sigma, (layer.heads,)).reshape(groups, -1)
        for sigma in (layer.sigma_q, layer.sigma_k, layer.sigma_v, layer.sigma_o)
    )
    key_scores, key_outputs = jax.random.split(rng_key)

    def group_projections(_: None, group: tuple) -> tuple[None, tuple[Array, Array]]:
        key, sigma_q, sigma_k = group
        key_K, key_Q = jax.random.split(key)

        def head_queries(_: None, head: tuple) -> tuple[None, Array]:
            key, sigma = head
            return None, X_q @ weights(key, sigma, n, n_H)

        queries = jax.lax.scan(head_queries, None, (jax.random.split(key_Q, len(sigma_q)), sigma_q))[1]
        return None, (queries, X @ weights(key_K, sigma_k, n, n_H))

    each = jax.random.split(key_scores, groups), sigma_q, sigma_k[:, 0]
    queries, keys = jax.lax.scan(group_projections, None, each)[1]
    queries, keys = (_turned(layer, _normed(layer, x)) for x in (queries.reshape(-1, *queries.shape[2:]), keys))
    products = queries @ jnp.repeat(keys, layer.group_size, axis=0).mT
    p = products * n_H**-0.5 * layer.score_factor
    if layer.qk_norm is not None:
        p = p * jnp.reshape(layer.qk_gain, (-1, 1, 1))
    if layer.sink_scale is not None:  # a sink that is so much higher is as good as scores that are so much lower
        sinks = jnp.reshape(layer.sink_scale, (-1, 1, 1)) * normals(jax.random.fold_in(key_scores, 1), (layer.heads, 1, 1))
        p = p - sinks
    A = layer.attention(p)

    def add_group(y: Array, group: tuple) -> tuple[Array, None]:
        key, sigma_v, sigma_o, A = group
        key_V, key_O = jax.random.split(key)
        values = X @ weights(key_V, sigma_v, n, n_H)

        def add_head(y: Array, head: tuple) -> tuple[Array, None]:
            key, sigma_o, A = head
            return y + A @ values @ weights(key, sigma_o, n_H, coordinates), None

        return jax.lax.scan(add_head, y, (jax.random.split(key_O, len(sigma_o)), sigma_o, A))

    every = jax.random.split(key_outputs, groups), sigma_v[:, 0], sigma_o, A.reshape(groups, -1, *A.shape[1:])
    y = jax.lax.scan(add_group, jnp.zeros((len(X_q), coordinates), A.dtype), every)[0]
    return p, y * layer.heads**-0.5


def weights(rng_key: Array, sigma: Any, fan_in: int, fan_out: int) -> Float[Array, "{fan_in} {fan_out}"]:
    """A weight matrix with entries N(0, sigma^2 / fan_in)."""
    return sigma * fan_in**-0.5 * normals(rng_key, (fan_in, fan_out))


def _normed(layer: Architecture, x: Float[Array, "heads s n_H"]) -> Float[Array, "heads s n_H"]:
    """Queries, or keys, as the description says."""
    if layer.qk_norm is None:
        return x
    if layer.qk_norm == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    over = (0, -1) if layer.qk_norm == "rms_all" else -1
    return x / jnp.sqrt(jnp.mean(x**2, axis=over, keepdims=True) + layer.qk_eps)


def _turned(layer: Architecture, x: Float[Array, "heads s n_H"]) -> Float[Array, "heads s n_H"]:
    return x if layer.rotary is None else rotate(x, layer.rotary)


def _checked(name: str, X: Any) -> Array:
    X = as_array(name, X)
    if X.ndim != 2 or 0 in X.shape or not np.all(np.isfinite(X)):
        raise unusable(name, "RandomInputs, or finite numbers of shape (tokens, width)", f"shape {X.shape}")
    return jnp.asarray(X)
