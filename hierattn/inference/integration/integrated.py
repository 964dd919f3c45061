"""Log likelihoods of networks with their scores integrated out, at every posterior draw: what leaving one network out needs.

Particles of `evidence` are made at one place of the posterior, or a few if it is wide. From there to the draws they are
weighted anew: with the scores p kept (and the factors of keys and values at finite head_dim), another score_scale changes only
their prior and another value_scale only the trace. All places serve all draws, as one mixture (Veach and Guibas 1995).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from hierattn.base.threads import in_threads
from hierattn.inference.integration.evidence import Annealed, Density, anneal
from hierattn.inference.latent.latents import Latents, main, squares
from hierattn.inference.likelihood import Data, Terms, log_likelihood, log_prior, terms, terms_and_gradient
from hierattn.inference.problem import Posterior, Problem

BATCHES, PARTICLES, FEWEST = 8, 64, 16
TOGETHER = 2  # batches at a time
ROOM = 2**22  # latent numbers held at once
MOST_PLACES = 8


class Integrated(NamedTuple):
    """Log likelihood of every network at every draw, and the standard error of each network's, over draws."""

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
    most = ROOM // (data.latent_dim * data.S.shape[-1] * BATCHES)
    return min(PARTICLES, most) if most >= FEWEST else 0


@partial(jax.jit, static_argnames="particles")
def particles_at(data: Data, q: Any, o: Any, rng_key: Array, particles: int) -> Particles:
    """One batch of particles."""
    networks = data.S.shape[-1]

    def flat(x: Latents) -> Array:
        return jnp.concatenate([a.reshape(-1, networks) for a in jax.tree.leaves(x)])

    def density(x: Array) -> Density:
        latents = data.shaped(x)
        found, gradient = terms_and_gradient(data, latents, q, o)
        prior, back = jax.vjp(lambda x: log_prior(data, data.shaped(x)), x)
        (of_prior,) = back(jnp.ones_like(prior))
        beyond = of_prior + flat(data.shaped(x))  # the gradient holds what the prior has beyond standard normals
        return Density(prior, log_likelihood(data, found, o), of_prior, flat(gradient) - beyond)

    key_start, key_anneal = jax.random.split(rng_key)
    start = jax.vmap(lambda key: flat(data.drawn(key)))(jax.random.split(key_start, particles))
    end: Annealed = anneal(density, start, key_anneal)

    def kept(x: Array) -> tuple[Array, Terms]:
        latents = data.shaped(x)
        return squares(main(latents)), terms(data, latents, q)

    return Particles(q, o, *jax.vmap(kept)(end.x), end.log_evidence)


@jax.jit
def reweighted(data: Data, at: Particles, q: Float[Array, " draw"], o: Float[Array, " draw"]) -> Float[Array, "draw network"]:
    """Log integrated likelihood at other parameters, from particles of one batch made at some places (first axis).

    Particles of all places are draws from the mixture of their posteriors, whatever place each is from.
    """
    t, dim = data.S.shape[0], data.score_dim
    squares = at.squares * at.q[:, None, None] ** 2  # of scores, which all parameters have in common

    def log_density(q: Any, o: Any) -> Array:
        """Of scores and outputs, but for what does not depend on the parameters."""
        return -dim * jnp.log(q) - squares / (2 * q**2) - data.n * t * jnp.log(o) - at.found.trace / (2 * o**2)

    places = [log_density(*place) - log_Z for *place, log_Z in zip(at.q, at.o, at.log_evidence, strict=True)]
    mixture = logsumexp(jnp.stack(places), axis=0)  # their number cancels with that of all particles
    return jax.lax.map(lambda draw: logsumexp(log_density(*draw) - mixture, axis=(0, 1)) - jnp.log(squares.shape[1]), (q, o))


def places_for(q: Float[np.ndarray, " draw"], o: Float[np.ndarray, " draw"], dim: int) -> Float[np.ndarray, "place 2"]:
    """Parameters for particles: from each draw, one is near enough for weights that vary by less than about e."""
    low, high = np.quantile(np.log(q), [0.01, 0.99])
    number = int(np.clip(np.ceil((high - low) * max(np.sqrt(2 * dim) / 2, 2)), 1, MOST_PLACES))
    centres = low + (high - low) * (np.arange(number) + 0.5) / number
    nearest = [np.argsort(np.abs(np.log(q) - centre))[: len(q) // number + 1] for centre in centres]
    return np.stack([np.exp(centres), [np.median(o[near]) for near in nearest]], axis=1)


def limit_law_likelihood(problem: Problem, found: Posterior, seed: int) -> Integrated | str:
    """Log likelihoods of networks of a law with a known kernel, in the outputs' own units."""
    data, scale = problem.data(), problem.observations.scale
    if data.made is not None and not data.made.linear:
        return "scores of normed queries and keys at finite head_dim cannot be weighted anew"
    result = of_limit_law(data, found.draws["score_scale"].ravel(), found.draws["value_scale"].ravel() / scale, seed)
    if result is None:
        return f"{problem.observations.networks} networks have too many scores to integrate out"
    return result._replace(value=result.value - problem.observations.coordinates * data.S.shape[0] * np.log(scale))


def of_limit_law(data: Data, q: Float[np.ndarray, " draw"], o: Float[np.ndarray, " draw"], seed: int) -> Integrated | None:
    """At every draw of score_scale and value_scale (in the data's units); None if the networks are too many for it."""
    particles = particles_for(data)
    if not particles:
        return None
    places = places_for(q, o, data.score_dim)
    keys = jax.random.split(jax.random.key(seed), (BATCHES, len(places)))

    def batch(keys: Array) -> np.ndarray:
        at = [particles_at(data, *place, key, particles) for place, key in zip(places, keys, strict=True)]
        together = jax.tree.map(lambda *x: jnp.stack(x), *at)
        return np.asarray(reweighted(data, together, jnp.asarray(q), jnp.asarray(o)))

    first = second = np.full((len(q), data.S.shape[-1]), -np.inf)  # log sums of estimates and of their squares
    for k in range(0, BATCHES, TOGETHER):
        for found in in_threads(batch, list(keys[k : k + TOGETHER]), compiled=True):
            first, second = np.logaddexp(first, found), np.logaddexp(second, 2 * found)
    variance = (BATCHES * np.exp(second - 2 * first) - 1).clip(0) / (BATCHES - 1)
    return Integrated(first - np.log(BATCHES), np.sqrt(variance.mean(axis=0)))
