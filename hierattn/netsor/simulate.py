"""A program run at width n, explicitly: every matrix drawn, every vector computed. It knows nothing of the theory.

Within a network a matrix is drawn when vectors wait for it, and again if others come later; of matrices that lead to outputs
alone only the rows of the coordinates asked for. Network m depends on (rng_key, m) alone.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hierattn.base.errors import check_counts, check_key, unusable
from hierattn.finite.network import weights
from hierattn.layer import kernels
from hierattn.netsor.program import Program
from hierattn.netsor.variables import MatMul, support, value_of
from hierattn.numerics.random_numbers import normals

TOGETHER = 2**16  # entries of the matrices drawn at once: they stay in the cache
BATCH = 2**8  # networks of a part, at least if there are as many


def simulate(rng_key: Array, program: Program, width: int, networks: int, coordinates: int = 1) -> tuple[Array, Array]:
    """Scalars (network, dot) and outputs (network, letters, coordinate) of explicit networks."""
    p, y = zip(*stream(rng_key, program, width, networks, coordinates), strict=True)
    return jnp.concatenate(p), jnp.concatenate(y)


def stream(rng_key: Array, program: Program, width: int, networks: int, coordinates: int = 1) -> Iterator[tuple[Array, Array]]:
    """The networks in order, part by part."""
    check_key(rng_key)
    check_counts(width=width, networks=networks, coordinates=coordinates)
    if coordinates > width:
        raise unusable("coordinates", f"at most the width {width}", coordinates)
    together = max(1, TOGETHER // width**2)
    batch = max(together, min(BATCH, networks))
    for start in range(0, networks, batch):
        p, y = _draw(rng_key, program, width, start, batch, together, coordinates)
        yield p[: networks - start, 1:], y[: networks - start]


@partial(jax.jit, static_argnames=("program", "width", "batch", "together", "coordinates"))
def _draw(rng_key: Array, program: Program, width: int, start: Any, batch: int, together: int, coordinates: int) -> Any:
    keys = jax.vmap(lambda m: jax.random.fold_in(rng_key, m))(start + jnp.arange(batch))
    return jax.lax.map(partial(_network, program, width, coordinates), keys, batch_size=together)


def _network(program: Program, n: int, coordinates: int, rng_key: Array) -> tuple[Array, Array]:
    """Scalars, after a zero (JAX maps to no empty arrays), and outputs of one network."""
    factors = list(dict.fromkeys(g for p in program.dots for g in (p.left, p.right)))
    vectors = _needed([*factors, *program.base])
    inner = set(support([*factors, *(g.x for g in vectors if isinstance(g, MatMul))]))  # all n coordinates of these are needed
    whole = {g.W for g in inner if isinstance(g, MatMul)}
    sources = dict.fromkeys(g.W if isinstance(g, MatMul) else id(g.covariance) for g in vectors)
    keys = {source: jax.random.fold_in(rng_key, k) for k, source in enumerate(sources)}
    known: dict[Any, Array] = {}
    for u in vectors:
        if not isinstance(u, MatMul):
            L = jnp.asarray(kernels.factor(u.covariance))
            known[u] = L[u.member] @ normals(keys[id(u.covariance)], (L.shape[1], n), L.dtype)
    while len(known) < len(vectors):
        ready = [g for g in vectors if g not in known and all(h in known for h in support([g.x]))]
        group = [g for g in ready if g.W is ready[0].W]
        W = group[0].W
        drawn = weights(keys[W], W.sigma, n, n if W in whole else coordinates)
        products = jnp.stack([value_of(g.x, dict(known)) for g in group]) @ drawn
        known |= zip(group, products, strict=True)
    p = jnp.zeros(0)
    if factors:
        position, G = {g: k for k, g in enumerate(factors)}, jnp.stack([known[g] for g in factors])
        left, right = (np.array([position[getattr(p, side)] for p in program.dots]) for side in ("left", "right"))
        p = (G @ G.T)[left, right] * n**-0.5
    return jnp.pad(p, (1, 0)), program.evaluate(p, jnp.stack([known[g][:coordinates] for g in program.base]))


def _needed(vectors: list[Any]) -> list[Any]:
    """All initial vectors and products that these vectors are made of."""
    found: dict[Any, None] = {}
    waiting = support(vectors)[::-1]
    while waiting:
        u = waiting.pop()
        if u not in found:
            found[u] = None
            waiting += support([u.x])[::-1] if isinstance(u, MatMul) else []
    return list(found)
