"""Moves of some scores of one row together, of which most can go far where few are known well.

    p_ij -> p_ij + d for keys j in T      one head, one row; its weights go along a straight line,
                                          A_i -> A_i + x (B - A_i), B = A_i on T, normalised,
                                          x = z / (1 + z), z = (e^d - 1) (sum of A_i on T)

That is the line of -d for the keys not in T: the side with less weight is the one computed with, for B - A_i is rounding where
T has all weight, and x has no bound.

Where a head looks sharply most weights are tiny and their scores free, while a few are held in thin shells that set the step of
trajectories. Keys that are held to each other move together. Given all else d is Gaussian a priori, and Sigma changes by a
matrix of rank two: d is drawn by elliptical slice sampling (Murray, Adams and MacKay 2010), which has no step size. Row and
keys are drawn anew each time, so that a sequence of moves is reversible.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hierattn.inference.likelihood import Data, Terms, attention, covariance_of, inverse, terms, total
from hierattn.inference.methods.sweeps.directions import Lines
from hierattn.inference.methods.sweeps.lines import TINY, Plane
from hierattn.inference.methods.sweeps.picking import dot, of_head, of_key, times

LARGEST = 700.0  # exponent
SHRINKS = 12  # of the angle at most; a move that finds nothing until then stays


def move_parts_of_rows(data: Data, lines: Lines, E: Array, q: Any, o: Any, rng_key: Array, moves: int) -> tuple[Array, Terms]:
    """Latent E after so many moves, and terms of the likelihood there. All networks move the same scores."""
    H, (t, keys), networks = E.shape[0], (data.L_q.shape[0], data.L_k.shape[0]), E.shape[-1]
    key_which, key_keys, key_normal, key_where = jax.random.split(rng_key, 4)
    which = jnp.floor(jax.random.uniform(key_which, (moves, 2)) * jnp.array([H, t])).astype(int)
    parts = some_keys(jax.random.uniform(key_keys, (moves, keys + 3)))
    normals = jax.random.normal(key_normal, (moves, networks))
    where = jax.random.uniform(key_where, (moves, SHRINKS + 2, networks))

    def move(n: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        E, A, P = state
        h, i = which[n]
        head, e_i, part = jnp.arange(H) == h, jnp.arange(t) == i, parts[n][:, None]
        E_h, A_h = of_head(E, h), of_head(A, h)
        p_i, allowed = row_of_scores(data, E_h, q, h, i)
        A_i = data.weighing.function.weights(p_i, allowed, axis=0)
        masses = [jnp.sum(jnp.where(side, A_i, 0.0), axis=0) for side in (part, ~part)]
        mass, less = jnp.minimum(*masses), masses[0] <= masses[1]
        along = jnp.where(part == less, A_i, 0.0) / jnp.maximum(mass, TINY) - A_i
        K_along = total(lambda key: data.K[key] * along[key], keys)
        w = jnp.broadcast_to(jnp.where(e_i[:, None], 1.0, 0.0), (t, networks))
        plane = Plane.of(data, P, w, total(lambda key: A_h[:, key] * K_along[key], keys), dot(along, K_along), H)
        u = of_key(lines.L_q_inverse, e_i)  # L_q u = e_i
        g = total(
            lambda key: jnp.where(part[key], lines.L_k_inverse[:, key], 0.0), keys
        )  # L_k g = the keys, but for a constant
        spread = q / jnp.sqrt(dot(u, u) * dot(g, g))
        centre = -dot(u, times(E_h, g)) * spread**2 / q

        def x_of(d: Float[Array, " network"]) -> Float[Array, " network"]:
            z = mass * jnp.expm1(jnp.minimum(jnp.where(less, d, -d), LARGEST))
            return z / (1 + z)

        d = _drawn(lambda d: plane.log_likelihood(x_of(d), data.n, o), centre, spread * normals[n], where[n])
        E = jnp.where(head[:, None, None, None], E + u[:, None] * g * (d / q), E)
        A_i = data.weighing.function.weights(p_i + jnp.where(part, d, 0.0), allowed, axis=0)
        A = jnp.where(head[:, None, None, None] & e_i[:, None, None], A_i, A)
        return E, A, plane.inverse(P, x_of(d))

    A = attention(data, E, q)
    E, _, _ = jax.lax.fori_loop(0, moves, move, (E, A, inverse(covariance_of(data, A))[0]))
    return E, terms(data, E, q)


def row_of_scores(data: Data, E_h: Array, q: Any, h: Any, i: Any) -> tuple[Float[Array, "key network"], Any]:
    """Scores of row i of head h, and which keys are allowed: weights that are tiny come from these, not from their changes."""
    of_row = times(E_h.swapaxes(0, 1), of_head(data.L_q, i))
    weighing = data.weighing  # of plain softmax
    allowed = None if weighing.allowed is None else of_head(weighing.allowed, i)
    return q * times(data.L_k, of_row) + of_head(of_head(weighing.added, h), i), allowed


def some_keys(uniforms: Float[Array, "move number"]) -> Bool[Array, "move key"]:
    """Every other time a single key, else any keys but none and all."""
    keys = uniforms.shape[1] - 3
    first, second = (jnp.floor(uniforms[:, c] * tops).astype(int) for c, tops in ((0, keys), (1, keys - 1)))
    second = (first + 1 + second) % keys
    is_first, is_second = (jnp.arange(keys) == key[:, None] for key in (first, second))
    several = is_first | ((uniforms[:, 3:] < 0.5) & ~is_second)
    return jnp.where(uniforms[:, 2:3] < 0.5, is_first, several)


def _drawn(
    log_likelihood: Callable[[Array], Array],
    centre: Float[Array, " network"],
    other: Float[Array, " network"],
    uniforms: Float[Array, "n network"],
) -> Float[Array, " network"]:
    """A change d from N(centre, .) times a likelihood, which is 1 at d = 0, on the ellipse through 0 and another draw."""
    level, angle = jnp.log(uniforms[0]), 2 * jnp.pi * uniforms[1]
    nothing = jnp.zeros_like(centre)

    def shrink(n: Any, state: tuple) -> tuple:
        low, high, angle, d, done = state
        new = centre * (1 - jnp.cos(angle)) + other * jnp.sin(angle)
        inside = log_likelihood(new) >= level
        d = jnp.where(inside & ~done, new, d)
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        return low, high, low + (high - low) * uniforms[n + 2], d, done | inside

    first = (angle - 2 * jnp.pi, angle, angle, nothing, jnp.zeros(nothing.shape, bool))
    return jax.lax.fori_loop(0, SHRINKS, shrink, first)[3]
