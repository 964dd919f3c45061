"""Pieces of trajectories: latents and momentum turn exactly under the Gaussian prior, and the likelihood's gradient kicks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import Latents, spread, squares

LARGEST_STEP, LARGEST_KICK = 1.2, 2.0


class Turns(NamedTuple):
    """Angles by which latents turn in a step, with their cosines and sines."""

    angle: Any
    cosine: Any
    sine: Any


def turns_of(E: Latents, step: Float[Array, " network"], square: Float[Array, "r_q m_or_1 network"]) -> Turns:
    """Angles for step sizes of the networks, longer in what varies more of E."""
    angle = spread(E, jnp.minimum(step * jnp.sqrt(square), LARGEST_STEP), jnp.minimum(step, LARGEST_STEP))
    turns = jax.lax.optimization_barrier(jax.tree.map(lambda x: (jnp.cos(x), jnp.sin(x)), angle))  # once, not at every leap
    return Turns(angle, *jax.tree.transpose(jax.tree.structure(angle), jax.tree.structure((0, 0)), turns))


def kicked(turns: Turns, momentum: Latents, gradient: Latents, share: Any) -> Latents:
    """The momentum after a share of a kick."""
    kick = bounded(jax.tree.map(jnp.multiply, turns.angle, gradient))
    return jax.tree.map(lambda v, kick: v + share * kick, momentum, kick)


def turned(turns: Turns, E: Latents, momentum: Latents, last: Any) -> tuple[Latents, Latents]:
    """Latents and momentum a step later, but the same at the end."""
    parts = (turns.cosine, 1.0), (turns.sine, 0.0)
    c, s = (jax.tree.map(lambda x, end=end: jnp.where(last, end, x), turn) for turn, end in parts)
    return (
        jax.tree.map(lambda E, v, c, s: E * c + v * s, E, momentum, c, s),
        jax.tree.map(lambda E, v, c, s: v * c - E * s, E, momentum, c, s),
    )


def bounded(kick: Latents) -> Latents:
    """A kick of at most LARGEST_KICK typical momenta, so that trajectories pass walls and are not flung off them.

    Where Sigma is nearly singular gradients have no end. Any force will do: the energies compared are the true ones.
    """
    longest = LARGEST_KICK * sum(x[..., 0].size for x in jax.tree.leaves(kick)) ** 0.5
    kick = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), kick)
    share = jnp.minimum(1, longest / jnp.maximum(jnp.sqrt(squares(kick)), 1e-300))
    return jax.tree.map(lambda x: x * share, kick)
