"""Drawing from a law part by part: `Law` is the face of this file.

Scores are drawn in chunks of networks whose size depends on the law alone, and outputs in parts of a chunk, sized by their
number of coordinates, with keys folded from (rng_key, chunk, part). So the first networks are the same however many are asked
for, memory does not grow with their number, and nothing is compiled again for another one.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from hierattn.law import Law

CHUNK = 2**18  # scores drawn at once: they stay in the cache
PART = 2**20  # normals drawn at once for outputs


class Networks(NamedTuple):
    """Networks drawn together: scores p, factors F of Sigma = F F', outputs y."""

    p: Float[Array, "network H q k"]
    F: Float[Array, "network q Hr"]
    y: Float[Array, "network q coordinate"]


def networks(law: "Law", rng_key: Array, number: int, coordinates: int = 1, given: Array | None = None) -> Iterator[Networks]:
    """All networks in order, a part at a time; with the given scores if there are any."""
    waves = 1 if law.layer.rotary is None else 2 * law.layer.rotary.shape[0]
    chunk = _power_of_two(CHUNK // (law.layer.heads * law.shape[0] * law.shape[1] * waves))
    part = min(chunk, _power_of_two(PART // (law.layer.heads * law.L_k.shape[-1] * coordinates)))
    for start in range(0, number, chunk):
        c = start // chunk
        p = draw_scores(law, rng_key, c, chunk) if given is None else _chunk_of(given, c, chunk)
        F = draw_factors(law, rng_key, c, p)
        for first in range(start, min(start + chunk, number), part):
            drawn = draw_outputs(rng_key, c, p, F, (first - start) // part, part, coordinates)
            yield drawn if number - first >= part else jax.tree.map(lambda x: x[: number - first], drawn)  # noqa: B023


@partial(jax.jit, static_argnames=("chunk",))
def draw_scores(law: "Law", rng_key: Array, c: Any, chunk: int) -> Float[Array, "network H q k"]:
    """Scores of the networks of chunk c."""
    return law.scores_from(*law.sample_base(_key(rng_key, c, 0), chunk))


@jax.jit
def draw_factors(law: "Law", rng_key: Array, c: Any, p: Array) -> Float[Array, "network q Hr"]:
    """Factors of Sigma for the networks of chunk c, whose scores are p."""
    return law.factor(p, law.sample_values(_key(rng_key, c, 1), len(p)))


@partial(jax.jit, static_argnames=("part", "coordinates"))
def draw_outputs(rng_key: Array, c: Any, p: Array, F: Array, j: Any, part: int, coordinates: int) -> Networks:
    """Part j of chunk c, with its outputs."""
    p, F = (jax.lax.dynamic_slice_in_dim(x, j * part, part) for x in (p, F))
    key = jax.random.fold_in(_key(rng_key, c, 2), j)
    return Networks(p, F, F @ jax.random.normal(key, (part, F.shape[-1], coordinates), F.dtype))


def _key(rng_key: Array, c: Any, purpose: int) -> Array:
    """A chunk's key for scores (0), values (1) or outputs (2)."""
    return jax.random.split(jax.random.fold_in(rng_key, c), 3)[purpose]


def _chunk_of(given: Array, c: int, chunk: int) -> Array:
    """Given scores of chunk c; zeros fill up the last one."""
    p = given[c * chunk : (c + 1) * chunk]
    return jnp.pad(p, [(0, chunk - len(p)), (0, 0), (0, 0), (0, 0)])


def _power_of_two(x: int) -> int:
    return 1 << max(x.bit_length() - 1, 0)
