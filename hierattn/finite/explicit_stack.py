"""Whole Transformers drawn weight by weight: the ground truth of `stack`, which knows nothing of frames and Gram matrices.

The same description, forward as any framework would compute it. Every network has tables, matrices and biases of its own.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import check_counts, check_key, unusable
from hierattn.base.float64 import in_float64
from hierattn.finite.network import draw_layer, weights
from hierattn.layer.kernels import factor
from hierattn.numerics.random_numbers import normals
from hierattn.stack.blocks import MLP, Block, Norm
from hierattn.stack.embedding import Embedding
from hierattn.stack.functions import function_of
from hierattn.stack.stack import Stack


@in_float64
def explicit_streams(rng_key: Array, stack: Stack, networks: int = 1) -> Float[Array, "network layer s n"]:
    """The residual streams themselves, every coordinate: the embedding, after every block, after the final norm."""
    check_key(rng_key)
    check_counts(networks=networks)
    if stack.width is None:
        raise unusable("width", "a finite width to draw weights of", None)
    embedding = stack.embedding
    given = None
    if embedding.kernel is None:
        given = _inputs(embedding, stack.width)
    root = None if embedding.kernel is None else jnp.asarray(factor(embedding.kernel))
    numbers = (root, given, embedding.norm, stack.blocks, stack.final_norm)
    keys = jax.random.split(rng_key, networks)
    return _forward(keys, numbers, stack.width)


def _inputs(embedding: Embedding, width: int) -> Array:
    """Some X of this width with the given inner products and means."""
    m = np.zeros(embedding.tokens) if embedding.means is None else embedding.means
    F = np.concatenate([m[:, None], factor(embedding.gram - np.outer(m, m))], axis=1)
    if F.shape[1] > width:
        raise unusable("gram", f"inputs of at most {width} directions, the mean being one", F.shape[1])
    basis = np.random.default_rng(0).normal(size=(width, F.shape[1]))
    basis[:, 0] = 1
    Q, R = np.linalg.qr(basis)
    return jnp.asarray(width**0.5 * F @ (Q * np.sign(np.diagonal(R))).T)


@partial(jax.jit, static_argnames="width")
def _forward(keys: Array, numbers: tuple, width: int) -> Float[Array, "network layer s n"]:
    root, given, embedding_norm, blocks, final_norm = numbers

    def one(key: Array) -> Float[Array, "layer s n"]:
        key, *keys = jax.random.split(key, len(blocks) + 1)
        X = given if root is None else root @ normals(key, (root.shape[1], width))
        streams = [_norm(X, embedding_norm)]
        for key, block in zip(keys, blocks, strict=True):
            streams.append(_block(key, streams[-1], block))
        return jnp.stack(streams if final_norm is None else [*streams, _norm(streams[-1], final_norm)])

    return jax.lax.map(one, keys)


def _norm(X: Float[Array, "s n"], norm: Norm | None) -> Float[Array, "s n"]:
    if norm is None:
        return X
    if norm.kind == "layer":
        X = X - X.mean(axis=1, keepdims=True)
    return norm.gain * X / jnp.sqrt((X**2).mean(axis=1, keepdims=True) + norm.eps)


def _block(rng_key: Array, X: Float[Array, "s n"], block: Block) -> Float[Array, "s n"]:
    first, norm = X, partial(_norm, norm=block.norm)
    for key, (name, branch, gain) in zip(jax.random.split(rng_key), block.branches(), strict=False):
        x = {"parallel": norm(first), "pre": norm(X), "sandwich": norm(X)}.get(block.placement, X)
        y = gain * _finish(_mlp(key, branch, x) if isinstance(branch, MLP) else _attention(key, branch, x), block)
        skip = 1.0 if block.placement == "parallel" and name == "mlp" and block.attention is not None else block.skip
        X = skip * X + y
        X = norm(X) if block.placement == "post" else X
    return X


def _finish(y: Float[Array, "s n"], block: Block) -> Float[Array, "s n"]:
    return _norm(y, block.norm) if block.placement in ("sandwich", "branch") else y


def _attention(rng_key: Array, layer: Any, X: Float[Array, "s n"]) -> Float[Array, "s n"]:
    return draw_layer(rng_key, layer.at_width(X.shape[1]), X, X, X.shape[1])[1]


def _mlp(rng_key: Array, mlp: MLP, X: Float[Array, "s n"]) -> Float[Array, "s n"]:
    if mlp.width is None:
        raise unusable("mlp", "a finite number of hidden units to draw weights of", None)
    (n, m), keys = (X.shape[1], mlp.width), jax.random.split(rng_key, 5)
    hidden = X @ weights(keys[0], mlp.sigma_in, n, m) + _bias(keys[1], mlp.sigma_bias, m)
    hidden = function_of(mlp.activation)(hidden)
    if mlp.gated:
        hidden = hidden * (X @ weights(keys[2], mlp.sigma_in, n, m) + _bias(keys[4], mlp.sigma_bias, m))
    return hidden @ weights(keys[3], mlp.sigma_out, m, n) + _bias(jax.random.fold_in(keys[1], 1), mlp.sigma_bias_out, n)


def _bias(rng_key: Array, sigma: Any, size: int) -> Any:
    return 0.0 if sigma is None else sigma * normals(rng_key, (size,))
