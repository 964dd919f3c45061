"""Moves of score_scale in which scores follow it as far as outputs allow, and value_scale with them.

    with powers   E -> E (q'/q)^(a-1), so that p -> p (q'/q)^a: a = 1 keeps the standard normals, a = 0 would keep the scores
    where hidden  p_ij -> r_ij + (p_ij - r_ij) q'/q where p_ij < r_ij = max_k p_ik - d, other scores are kept

The first is for covariances that are far from singular. Where they nearly are its steps are tiny, and score_scale creeps, since
with all scores kept it is known too well. But where a head looks sharply most weights are so small that outputs do not notice
their scores. Those that are less than the largest of their row by more than d follow. None of them crosses that distance, so
that on the way back it is the same ones that do. d is larger where Sigma is nearer to singular.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import main, with_main
from hierattn.inference.latent.products import product, transposed
from hierattn.inference.likelihood import Data, Terms, terms
from hierattn.inference.methods.sweeps.directions import Lines
from hierattn.inference.methods.sweeps.state import Prior, State

POWERS = (1.0, 0.6, 0.3)  # a
FURTHER = (-4.5, -3.5, -2.0)  # d less what Sigma's eigenvalues and the number of coordinates let expect
LEAST = 1.0  # d: the largest score itself never follows


def move_along_orbit(
    data: Data, lines: Lines | None, prior: Prior, state: State, found: Terms, orbit: Any, normal: Array, log_uniform: Array
) -> tuple[State, Terms, Float[Array, ""]]:
    """The state and its terms after a move along one of the orbits; also the acceptance probability."""
    t, _, networks = data.S.shape
    move = jnp.exp(state.log_orbit_step[orbit]) * normal
    E, log_volume = _with_powers(state, orbit, move) if lines is None else _where_hidden(data, lines, state, orbit, move)
    moved = state._replace(E=with_main(state.E, E), log_q=state.log_q + move)
    new = terms(data, moved.E, jnp.exp(moved.log_q))
    moved = moved._replace(log_o=state.log_o + jnp.log(jnp.sum(new.trace) / jnp.sum(found.trace)) / 2)

    def log_density(state: State, found: Terms) -> Array:
        likelihood = -data.n / 2 * jnp.sum(found.logdet) - networks * data.n * t * state.log_o
        return likelihood - jnp.sum(main(state.E) ** 2) / 2 + prior.of_log(state.log_q, state.log_o)

    gain = log_density(moved, new) - log_density(state, found) + log_volume
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    after = jax.tree.map(lambda new, old: jnp.where(log_uniform < gain, new, old), (moved, new), (state, found))
    return *after, jnp.exp(jnp.minimum(gain, 0))


def _with_powers(state: State, orbit: Any, move: Array) -> tuple[Array, Float[Array, ""]]:
    """E, and the log of the volume by which it changes."""
    E, less = main(state.E), (jnp.asarray(POWERS)[orbit] - 1) * move
    return E * jnp.exp(less), less * E.size


def _where_hidden(data: Data, lines: Lines, state: State, orbit: Any, move: Array) -> tuple[Array, Float[Array, ""]]:
    """The same. Keys that are not allowed are never seen, whatever their scores."""
    E, q, weighing = state.E, jnp.exp(state.log_q), data.weighing  # of plain softmax
    p = q * product(product(data.L_q[None], E), transposed(data.L_k)[None]) + weighing.added
    seen = p if weighing.allowed is None else jnp.where(weighing.allowed, p, -jnp.inf)
    beyond = p - jnp.max(seen, axis=2, keepdims=True) + jnp.maximum(lines.depth + jnp.asarray(FURTHER)[orbit], LEAST)
    follows = (beyond < 0) | jnp.isinf(seen)
    change = product(lines.L_q_inverse[None], jnp.where(follows, jnp.expm1(move) * beyond, 0.0))
    E = jnp.exp(-move) * (E + product(change, transposed(lines.L_k_inverse)[None]) / q)
    return E, (jnp.sum(follows) - E.size) * move
