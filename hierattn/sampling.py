"""Drawing from a law in chunks of networks: `Law` is the face of this file.

A chunk's size depends on the law alone and its randomness on (rng_key, chunk), so the first draws are the same however many
are asked for, in one call or in parts. One chunk is compiled, whatever the number of networks, and stays in the cache.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from hierattn.law import Law

CHUNK = 2**18  # scores drawn at once


class Networks(NamedTuple):
    """Networks drawn together: scores p, factors F of Sigma = F F', outputs y."""

    p: Float[Array, "network H q k"]
    F: Float[Array, "network q Hr"]
    y: Float[Array, "network q coordinate"]


def chunk_size(law: "Law") -> int:
    """Networks in a chunk."""
    waves = 1 if law.layer.rotary is None else 2 * law.layer.rotary.shape[0]
    return max(1, CHUNK // (law.layer.heads * law.shape[0] * law.shape[1] * waves))


def chunks(law: "Law", rng_key: Array, networks: int, coordinates: int = 1) -> Iterator[Networks]:
    """All networks, chunk by chunk; the last one is cut to measure."""
    size = chunk_size(law)
    for c in range(-(-networks // size)):
        drawn = draw_chunk(law, rng_key, c, size, coordinates)
        yield jax.tree.map(lambda x: x[: networks - c * size], drawn) if (c + 1) * size > networks else drawn  # noqa: B023


@partial(jax.jit, static_argnames=("size", "coordinates"))
def draw_chunk(law: "Law", rng_key: Array, c: Any, size: int, coordinates: int) -> Networks:
    """The networks of chunk c."""
    key_p, key_D, key_y = _keys(rng_key, c)
    p = law.scores_from(*law.sample_base(key_p, size))
    F, y = _outputs(law, key_D, key_y, p, coordinates)
    return Networks(p, F, y)


@partial(jax.jit, static_argnames=("coordinates",))
def draw_given(law: "Law", rng_key: Array, c: Any, p: Array, coordinates: int) -> Array:
    """Outputs of the networks of chunk c, whose scores p are given."""
    _, key_D, key_y = _keys(rng_key, c)
    return _outputs(law, key_D, key_y, p, coordinates)[1]


def given(law: "Law", rng_key: Array, p: Array, coordinates: int) -> Array:
    """Outputs of the networks that have the scores p; a last chunk that is not full is filled up, then cut."""
    size, networks = chunk_size(law), len(p)
    p = jnp.pad(p, [(0, -networks % size), (0, 0), (0, 0), (0, 0)])
    drawn = [draw_given(law, rng_key, c, p[c * size : (c + 1) * size], coordinates) for c in range(len(p) // size)]
    return jnp.concatenate(drawn)[:networks]


def _keys(rng_key: Array, c: Any) -> Array:
    """A chunk's keys for scores, values and outputs."""
    return jax.random.split(jax.random.fold_in(rng_key, c), 3)


def _outputs(law: "Law", key_D: Array, key_y: Array, p: Array, coordinates: int) -> tuple[Array, Array]:
    F = law.factor(p, law.sample_values(key_D, len(p)))
    root = F
    if coordinates > 4 * F.shape[-2]:  # a square root of Sigma costs less than the normals it saves
        root = jnp.linalg.qr(F.mT, mode="r").mT
    return F, root @ jax.random.normal(key_y, (len(p), root.shape[-1], coordinates), F.dtype)
