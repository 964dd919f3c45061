"""Drawing from a law in chunks of networks: `Law` is the face of this file.

A chunk's size depends on the law alone and its randomness on (rng_key, chunk), so the first draws are the same however many
are asked for, in one call or in parts, on any number of devices.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from hierattn.law import Law

CHUNK = 2**18  # scores drawn at once: chunks of this size stay in the cache


def chunk(law: "Law") -> int:
    """Networks in a chunk: fixed by the law alone, so that draws do not depend on how many are asked for."""
    waves = 1 if law.layer.rotary is None else 2 * law.layer.rotary.shape[0]
    return max(1, CHUNK // (law.layer.heads * law.shape[0] * law.shape[1] * waves))


def _by_chunks(law: "Law", rng_key: Array, first: Any, networks: int, draw: Any) -> Array:
    """draw(chunk, keys for scores, values, outputs), over as many chunks as the networks need, from the first one on."""
    size = chunk(law)
    chunks = -(-networks // size)
    drawn = jax.lax.map(lambda c: draw(c, *jax.random.split(jax.random.fold_in(rng_key, c), 3)), first + jnp.arange(chunks))
    return drawn.reshape(chunks * size, *drawn.shape[2:])[:networks]


def _draw_scores(law: "Law", rng_key: Array) -> Array:
    return law.scores_from(*law.sample_base(rng_key, chunk(law)))


def _draw_outputs(law: "Law", key_D: Array, key_y: Array, p: Array, coordinates: int) -> Float[Array, "network q coordinate"]:
    F = law.factor(p, law.sample_values(key_D, len(p)))
    if coordinates > 4 * F.shape[-2]:  # a square root of Sigma costs less than the normals it saves
        F = jnp.linalg.qr(F.mT, mode="r").mT
    return F @ jax.random.normal(key_y, (len(p), F.shape[-1], coordinates), F.dtype)


@partial(jax.jit, static_argnames=("networks", "coordinates"))
def outputs(law: "Law", rng_key: Array, first: Any, networks: int, coordinates: int) -> Array:
    """Outputs (network, token, coordinate), from chunk `first` on."""

    def draw(c: Array, key_p: Array, key_D: Array, key_y: Array) -> Array:
        return _draw_outputs(law, key_D, key_y, _draw_scores(law, key_p), coordinates)

    return _by_chunks(law, rng_key, first, networks, draw)


@partial(jax.jit, static_argnames=("networks",))
def scores(law: "Law", rng_key: Array, first: Any, networks: int) -> Array:
    """Scores (network, head, query, key), from chunk `first` on."""
    return _by_chunks(law, rng_key, first, networks, lambda c, key_p, key_D, key_y: _draw_scores(law, key_p))


@partial(jax.jit, static_argnames=("networks",))
def Sigma(law: "Law", rng_key: Array, networks: int) -> Array:
    """Conditional covariances (network, token, token)."""

    def draw(c: Array, key_p: Array, key_D: Array, key_y: Array) -> Array:
        return law.Sigma(_draw_scores(law, key_p), law.sample_values(key_D, chunk(law)))

    return _by_chunks(law, rng_key, 0, networks, draw)


@partial(jax.jit, static_argnames=("coordinates",))
def given(law: "Law", rng_key: Array, p: Array, coordinates: int) -> Array:
    """Outputs of the networks that have the scores p."""
    size, networks = chunk(law), len(p)

    def draw(c: Array, key_p: Array, key_D: Array, key_y: Array) -> Array:
        rows = (c * size + jnp.arange(size)) % networks  # the last chunk is filled up with networks that are dropped
        return _draw_outputs(law, key_D, key_y, p[rows], coordinates)

    return _by_chunks(law, rng_key, 0, networks, draw)
