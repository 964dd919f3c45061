"""Drawing networks part by part from whatever gives their inputs, fixed or random.

Scores are drawn in chunks of networks whose size depends on the law alone, and outputs in parts of a chunk, sized by their
number of coordinates, with keys folded from (rng_key, chunk, part). So the first networks are the same however many are asked
for, memory does not grow with their number, and nothing is compiled again for another one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import UnsafeInputError, check_counts, check_key
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals

CHUNK = 2**18  # scores drawn at once: they stay in the cache
PART = 2**20  # normals drawn at once for outputs
TOO_LARGE = 2**33  # bytes of one returned array
Given = Any  # the law of networks given their inputs: a `Hierarchy`, or what has its methods


class Networks(NamedTuple):
    """Networks drawn together: scores p, factors F of Sigma = F F', outputs y."""

    p: Float[Array, "network H q k"]
    F: Float[Array, "network q Hr"]
    y: Float[Array, "network q coordinate"]


class Recipe(NamedTuple):
    """How something is drawn for many networks: draw(rng_key, networks, *fixed, *numbers), compiled once for all numbers."""

    draw: Callable
    fixed: tuple
    numbers: tuple


class Source(ABC):
    """A law of networks that can be drawn from: a layer, its (queries, keys), a dtype, and inputs, fixed or random."""

    layer: Architecture

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """What draws are computed in."""

    @abstractmethod
    def with_inputs(self, rng_key: Array, networks: int) -> Given:
        """The law given the inputs of these networks."""

    @abstractmethod
    def variances_of(self, token: int, keys: np.ndarray, heads: Any, networks: int) -> Recipe | None:
        """The recipe for conditional variances of one token that sees these keys, networks at a time; None without one."""


@partial(jax.jit, static_argnames=("networks", "draw", "fixed"))
def follow(rng_key: Array, networks: int, draw: Callable, fixed: tuple, numbers: tuple) -> Any:
    """What a recipe gives."""
    return draw(rng_key, networks, *fixed, *numbers)


def draw_networks(
    law: Source, rng_key: Array, number: int, coordinates: int = 1, given: Array | None = None
) -> Iterator[Networks]:
    """All networks in order, a part at a time; with the given scores if there are any."""
    for start, keys, law_c, p in chunks(law, rng_key, number, given):
        F = draw_factors(law_c, keys.values, p)
        part = min(len(p), power_of_two(PART // (law.layer.heads * law.shape[1] * coordinates)))
        for first in range(start, min(start + len(p), number), part):
            drawn = draw_outputs(keys.outputs, p, F, (first - start) // part, part, coordinates)
            yield drawn if number - first >= part else jax.tree.map(lambda x: x[: number - first], drawn)  # noqa: B023


class Keys(NamedTuple):
    """A chunk's keys."""

    scores: Array
    values: Array
    outputs: Array
    inputs: Array


class Chunk(NamedTuple):
    """Networks drawn at once: the number of those before, keys, their law given its inputs, their scores."""

    start: int
    keys: Keys
    law: Given
    p: Float[Array, "network H q k"]


def chunks(law: Source, rng_key: Array, number: int, given: Array | None = None) -> Iterator[Chunk]:
    """All chunks in order; with the given scores if there are any."""
    waves = 1 if law.layer.rotary is None else 2 * law.layer.rotary.shape[0]
    chunk = power_of_two(CHUNK // (law.layer.heads * law.shape[0] * law.shape[1] * waves))
    for c in range(-(-number // chunk)):
        keys = keys_of(rng_key, c)
        law_c = law.with_inputs(keys.inputs, chunk)
        p = draw_scores(law_c, keys.scores, chunk) if given is None else _chunk_of(given, c, chunk)
        yield Chunk(c * chunk, keys, law_c, p)


def draw_scores(law: Given, rng_key: Array, networks: int) -> Float[Array, "network H q k"]:
    """Scores of some networks. Wishart factors are compiled apart: laws that differ share them."""
    if law.layer.head_dim is None:
        return gaussian_scores(law, rng_key, networks)
    return scores_of(law, law.sample_base(rng_key, networks))


def draw_factors(law: Given, rng_key: Array, p: Array) -> Float[Array, "network q Hr"]:
    """Factors of Sigma for networks whose scores are p."""
    return factors_of(law, p, law.sample_values(rng_key, len(p)))


@partial(jax.jit, static_argnames=("networks",))
def gaussian_scores(law: Given, rng_key: Array, networks: int) -> Float[Array, "network H q k"]:
    """Scores at infinite head_dim."""
    return law.scores_from(*law.sample_base(rng_key, networks))


@jax.jit
def scores_of(law: Given, base: tuple) -> Float[Array, "network H q k"]:
    """Scores made of standard variables."""
    return law.scores_from(*base)


@jax.jit
def factors_of(law: Given, p: Array, D: Array | None) -> Float[Array, "network q Hr"]:
    """Factors of Sigma made of scores and values."""
    return law.factor(p, D)


@partial(jax.jit, static_argnames=("part", "coordinates"))
def draw_outputs(rng_key: Array, p: Array, F: Array, j: Any, part: int, coordinates: int) -> Networks:
    """Part j of a chunk, with its outputs."""
    p, F = (jax.lax.dynamic_slice_in_dim(x, j * part, part) for x in (p, F))
    key = jax.random.fold_in(rng_key, j)
    return Networks(p, F, F @ normals(key, (part, F.shape[-1], coordinates), F.dtype))


@jax.jit
def keys_of(rng_key: Array, c: Any) -> Keys:
    """The keys of chunk c: made once, so that what is drawn with them is sooner compiled."""
    return Keys(*jax.random.split(jax.random.fold_in(rng_key, c), 4))


def _chunk_of(given: Array, c: int, chunk: int) -> Array:
    """Given scores of chunk c; zeros fill up the last one."""
    p = given[c * chunk : (c + 1) * chunk]
    return jnp.pad(p, [(0, chunk - len(p)), (0, 0), (0, 0), (0, 0)])


def power_of_two(x: int) -> int:
    """The largest power of two up to x; 1 at least."""
    return 1 << max(x.bit_length() - 1, 0)


def check_draws(dtype: Any, rng_key: Any, each: int, **counts: Any) -> None:
    """A key, counts that are positive, and no more draws of `each` numbers than one array may hold."""
    check_key(rng_key)
    check_counts(**counts)
    total = math.prod(map(int, counts.values())) * each * np.dtype(dtype).itemsize
    if total > TOO_LARGE:
        asked = " x ".join(f"{name} = {count}" for name, count in counts.items())
        raise UnsafeInputError(f"{asked}: expected at most {TOO_LARGE:.2g} bytes, got {total:.2g}; use stream")
