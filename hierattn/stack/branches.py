"""What a branch's outputs are made of: B with outputs B W, W the last, fresh matrix. Given B coordinates are N(0, B B')."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.law.hierarchy import Hierarchy
from hierattn.law.sampling import draw_scores
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals, two_keys
from hierattn.numerics.wishart import factor_last
from hierattn.stack.blocks import MLP
from hierattn.stack.functions import dual, function_of


class Attended(NamedTuple):
    """Attention's outputs as a factor, and the weights it used."""

    B: Float[Array, "network s Hr"]
    A: Float[Array, "network H s s"]


def attend(rng_key: Array, layer: Architecture, F: Float[Array, "network s r"]) -> Attended:
    """Scores, weights and values of attention over tokens at F."""
    key_scores, key_values = two_keys(rng_key)
    law = Hierarchy.from_factors(layer, F)
    p = draw_scores(law, key_scores, len(F))
    return Attended(law.factor(p, law.sample_values(key_values, len(F))), layer.attention(p))


def perceive(rng_key: Array | None, mlp: MLP, F: Float[Array, "network s r"]) -> Float[Array, "network s k"]:
    """Hidden units phi(sigma_in F xi + b), a column each, so scaled that their products sum to Sigma.

    If only some are drawn, their products are brought nearer to the mean: the covariance of products falls as 1 / units, and
    a mixture with weights 1 - w, w has w^2 of it and is a covariance of tokens too. Of infinitely many none is drawn: no key.
    """
    inputs, width = _with_bias(mlp.sigma_in * F, mlp.sigma_bias), mlp.width
    if width is None:
        return _with_bias(mlp.sigma_out * _expected(mlp, inputs), mlp.sigma_bias_out)
    assert rng_key is not None, "hidden units are drawn"
    if mlp.units is None or mlp.units >= width:
        B = _drawn(rng_key, mlp, width, inputs)
    else:
        w = (mlp.units / width) ** 0.5
        parts = [(1 - w) ** 0.5 * _expected(mlp, inputs), w**0.5 * _drawn(rng_key, mlp, mlp.units, inputs)]
        B = reduced(jnp.concatenate(parts, axis=-1))
    return _with_bias(mlp.sigma_out * B, mlp.sigma_bias_out)


def _with_bias(F: Float[Array, "network s r"], sigma: Any) -> Float[Array, "network s q"]:
    """A further direction that all tokens share."""
    if sigma is None:
        return F
    return jnp.concatenate([F, jnp.broadcast_to(jnp.asarray(sigma, F.dtype), (*F.shape[:2], 1))], axis=-1)


def _expected(mlp: MLP, inputs: Float[Array, "network s r"]) -> Float[Array, "network s s"]:
    """Of infinitely many hidden units."""
    K = inputs @ inputs.mT
    return root(dual(mlp.activation, K) * (K if mlp.gated else 1))


def _drawn(rng_key: Array, mlp: MLP, width: int, inputs: Float[Array, "network s r"]) -> Float[Array, "network s k"]:
    """Of `width` hidden units: their inner products suffice where they are more than tokens."""
    (networks, s, r), keys = inputs.shape, two_keys(rng_key)
    units, *gate = (inputs @ normals(key, (networks, r, width), inputs.dtype) for key in keys[: 2 if mlp.gated else 1])
    hidden = function_of(mlp.activation)(units)
    hidden = hidden * gate[0] if gate else hidden
    return width**-0.5 * (hidden if width <= s else reduced(hidden))


def reduced(B: Float[Array, "network s m"]) -> Float[Array, "network s s"]:
    """A factor of B B' as narrow as it is high.

    From inner products of the first token and of what others differ from it by, so that tokens that nearly coincide stay apart.
    """
    difference = jnp.concatenate([B[:, :1], B[:, 1:] - B[:, :1]], axis=1)
    L = root(difference @ difference.mT)
    return jnp.concatenate([L[:, :1], L[:, 1:] + L[:, :1]], axis=1)


def root(Sigma: Float[Array, "network s s"]) -> Float[Array, "network s s"]:
    """L with L L' = Sigma, which may be singular."""
    return jnp.moveaxis(factor_last(jnp.moveaxis(Sigma, 0, -1)), -1, 0)


def entropy(A: Any) -> Float[Array, "network H s"]:
    """Of every row of weights that sum to one."""
    return -jnp.sum(jnp.where(A > 0, A * jnp.log(jnp.where(A > 0, A, 1)), 0), axis=-1)
