"""Log likelihoods of networks with their scores integrated out, at every posterior draw: what leaving one network out needs.

Particles of `evidence` are made at one place of the posterior, or a few if it is wide. From there to the draws they are
weighted anew: with the scores p kept, another score_scale changes only their prior and another value_scale only the trace.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from hierattn.inference.evidence import Annealed, Density, anneal
from hierattn.inference.likelihood import Data, Terms, log_likelihood, terms, terms_and_gradient

BATCHES, PARTICLES, FEWEST = 8, 64, 16
ROOM = 2**22  # latent numbers held at once
MOST_PLACES = 6


class Integrated(NamedTuple):
    """Log likelihood of every network at every draw, and the standard error of each network's."""

    value: Float[np.ndarray, "draw network"]
    error: Float[np.ndarray, " network"]


class Particles(NamedTuple):
    """Particles of one batch, at one place (q, o): squared length of E, terms of the likelihood, log integrated likelihood."""

    q: Any
    o: Any
    squares: Float[Array, "particle network"]
    found: Terms
    log_evidence: Float[Array, " network"]


def particles_for(data: Data) -> int:
    """Particles of a batch that fit; 0 if they would be too few to trust."""
    most = ROOM // (int(np.prod(data.latent_shape)) * BATCHES)
    return min(PARTICLES, most) if most >= FEWEST else 0


@partial(jax.jit, static_argnames=("particles", "softmax"))
def particles_at(data: Data, q: Any, o: Any, rng_key: Array, particles: int, softmax: bool) -> Particles:
    """One batch of particles."""
    *event, networks = data.latent_shape
    dim = int(np.prod(event))

    def density(x: Array) -> Density:
        found, gradient = terms_and_gradient(data, x.reshape(data.latent_shape), q, o, softmax)
        return Density(-jnp.sum(x**2, axis=0) / 2, log_likelihood(data, found, o), -x, gradient.reshape(x.shape))

    key_start, key_anneal = jax.random.split(rng_key)
    end: Annealed = anneal(density, jax.random.normal(key_start, (particles, dim, networks), data.S.dtype), key_anneal)
    found = jax.vmap(lambda x: terms(data, x.reshape(data.latent_shape), q, softmax))(end.x)
    finished = jnp.where(end.beta == 1, end.log_evidence, jnp.nan)
    return Particles(q, o, jnp.sum(end.x**2, axis=1), found, finished)


@jax.jit
def reweighted(data: Data, at: Particles, q: Float[Array, " draw"], o: Float[Array, " draw"]) -> Float[Array, "draw network"]:
    """Log integrated likelihood at other parameters, from one batch."""
    t, dim = data.S.shape[0], int(np.prod(data.latent_shape[:-1]))

    def at_draw(draw: tuple[Array, Array]) -> Array:
        q, o = draw
        prior = -dim * jnp.log(q / at.q) - at.squares / 2 * ((at.q / q) ** 2 - 1)
        likelihood = -data.n * t * jnp.log(o / at.o) - at.found.trace / 2 * (o**-2 - at.o**-2)
        return at.log_evidence + logsumexp(prior + likelihood, axis=0) - jnp.log(at.squares.shape[0])

    return jax.lax.map(at_draw, (q, o))


def of_limit_law(
    data: Data, q: Float[np.ndarray, " draw"], o: Float[np.ndarray, " draw"], seed: int, softmax: bool = True
) -> Integrated | None:
    """At every draw of score_scale and value_scale (in the data's units); None if the networks are too many for it."""
    particles = particles_for(data)
    if not particles:
        return None
    width = np.log(q).std() * np.sqrt(2 * np.prod(data.latent_shape[:-1]))
    places = int(np.clip(np.ceil(1.5 * width), 1, MOST_PLACES))
    order = np.argsort(q)
    value, relative = np.empty((len(q), data.S.shape[-1])), np.zeros(data.S.shape[-1])
    for j, near in enumerate(np.array_split(order, places)):
        middle = near[len(near) // 2]
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), j), BATCHES)
        first = second = np.full((len(near), data.S.shape[-1]), -np.inf)  # log sums of estimates and of their squares
        for key in keys:
            batch = particles_at(data, q[middle], o[middle], key, particles, softmax)
            found = np.asarray(reweighted(data, batch, jnp.asarray(q[near]), jnp.asarray(o[near])))
            first, second = np.logaddexp(first, found), np.logaddexp(second, 2 * found)
        value[near] = first - np.log(BATCHES)
        variance = (BATCHES * np.exp(second - 2 * first) - 1).clip(0) / (BATCHES - 1)
        relative += np.sqrt(variance).mean(axis=0) * len(near) / len(q)
    return Integrated(value, relative)
