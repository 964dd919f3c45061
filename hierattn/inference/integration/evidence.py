"""The likelihood of a network with its scores integrated out: sequential Monte Carlo from the prior to the posterior.

Particles start in the prior of a network's latent variables and are led through prior x likelihood^beta, beta from 0 to 1: they
are weighted, resampled and moved by Hamiltonian steps, every network at a pace of its own (Del Moral, Doucet, Jasra 2006). The
mean weights on the way multiply to the integrated likelihood. Independent batches of particles tell its error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from hierattn.numerics.random_numbers import normals

KEEP = 0.9  # effective share of particles that a step in beta leaves
LEAPS = 8
MOST_STEPS = 200
NOTHING = -1e300  # log likelihood of what has none
FIRST_STEP, TARGET, LARGEST_STEP = 0.5, 0.75, 1.0


class Density(NamedTuple):
    """Log prior and log likelihood of every network at x (dim, network), with their gradients."""

    log_prior: Float[Array, " network"]
    log_likelihood: Float[Array, " network"]
    prior_gradient: Float[Array, "dim network"]
    likelihood_gradient: Float[Array, "dim network"]


class Annealed(NamedTuple):
    """Particles that follow the posterior of each network, log integrated likelihood (NaN if not found), the steps it took."""

    x: Float[Array, "particle dim network"]
    log_evidence: Float[Array, " network"]
    beta: Float[Array, " network"]
    steps: Array


def anneal(density: Callable[[Array], Density], x: Float[Array, "particle dim network"], rng_key: Array) -> Annealed:
    """Lead particles drawn from the prior to the posterior; for one batch of them (vmap for several)."""
    networks, everywhere = x.shape[-1], jax.vmap(density)

    def step(state: tuple) -> tuple:
        x, found, beta, log_evidence, log_step, k = state
        key_choose, key_momentum, key_jitter, key_accept = jax.random.split(jax.random.fold_in(rng_key, k), 4)
        to, gain, chosen = _weighted(found.log_likelihood, beta, jax.random.uniform(key_choose, (networks,)))
        x, found = jax.tree.map(
            lambda a: jnp.take_along_axis(a, chosen[:, None] if a.ndim == 3 else chosen, axis=0), (x, found)
        )
        jitter = jax.random.uniform(key_jitter, (networks,), minval=0.7, maxval=1.1)
        size = jnp.minimum(jnp.exp(log_step), LARGEST_STEP) * jitter
        x, found, accepted = _moved(everywhere, x, found, to, size, (key_momentum, key_accept))
        return x, found, to, log_evidence + gain, log_step + accepted - TARGET, k + 1

    def unfinished(state: tuple) -> Array:
        return (state[2] < 1).any() & (state[-1] < MOST_STEPS)

    start = x, everywhere(x), jnp.zeros(networks), jnp.zeros(networks), jnp.full(networks, jnp.log(FIRST_STEP)), jnp.asarray(0)
    x, _, beta, log_evidence, _, k = jax.lax.while_loop(unfinished, step, start)
    return Annealed(x, jnp.where((beta == 1) & (log_evidence > NOTHING / 2), log_evidence, jnp.nan), beta, k)


def _weighted(log_likelihood: Float[Array, "particle network"], beta: Array, u: Array) -> tuple[Array, Array, Array]:
    """The next beta, what the step to it adds to the log integrated likelihood, and the particles that go on."""
    value = jnp.where(jnp.isfinite(log_likelihood), log_likelihood, NOTHING)
    to = _next_beta(beta, value)
    weight = (to - beta) * value
    gain = logsumexp(weight, axis=0) - jnp.log(len(value))
    return to, gain, _resampled(jax.nn.softmax(weight, axis=0), u)


def _next_beta(beta: Float[Array, " network"], value: Float[Array, "particle network"]) -> Float[Array, " network"]:
    """As far as KEEP of the particles whose likelihood is not zero stay effective, by bisection."""
    enough = KEEP * jnp.sum(value > NOTHING, axis=0)

    def sufficient(to: Array) -> Array:
        w = (to - beta) * value
        return jnp.exp(2 * logsumexp(w, axis=0) - logsumexp(2 * w, axis=0)) >= enough

    def halve(_: Any, ends: tuple) -> tuple:
        low, high = ends
        middle = (low + high) / 2
        return jnp.where(sufficient(middle), middle, low), jnp.where(sufficient(middle), high, middle)

    low, _ = jax.lax.fori_loop(0, 40, halve, (beta, jnp.ones_like(beta)))
    return jnp.where(sufficient(jnp.ones_like(beta)), 1.0, low)


def _resampled(weights: Float[Array, "particle network"], u: Float[Array, " network"]) -> Array:
    """Systematic resampling of every network: indices of the particles that go on."""
    P = weights.shape[0]
    places = (jnp.arange(P)[:, None] + u) / P
    return jax.vmap(lambda w, place: jnp.minimum(jnp.searchsorted(jnp.cumsum(w), place), P - 1), in_axes=1, out_axes=1)(
        weights, places
    )


def _moved(
    everywhere: Callable, x: Array, found: Density, beta: Array, size: Array, keys: tuple[Array, Array]
) -> tuple[Array, Density, Array]:
    """One Hamiltonian trajectory of every particle; also the share of them that moved."""
    key_momentum, key_accept = keys

    def force(found: Density) -> Array:
        return found.prior_gradient + beta * found.likelihood_gradient

    def leap(_: Any, moving: tuple) -> tuple:
        x, momentum, found = moving
        momentum = momentum + size / 2 * force(found)
        x = x + size * momentum
        found = everywhere(x)
        return x, momentum + size / 2 * force(found), found

    momentum = normals(key_momentum, x.shape, x.dtype)
    moved = jax.lax.fori_loop(0, LEAPS, leap, (x, momentum, found))

    def energy(x: Array, momentum: Array, found: Density) -> Array:
        return jnp.sum(momentum**2, axis=1) / 2 - found.log_prior - beta * found.log_likelihood

    error = energy(*moved) - energy(x, momentum, found)
    probability = jnp.exp(-jnp.maximum(jnp.where(jnp.isnan(error), jnp.inf, error), 0))
    accepted = jax.random.uniform(key_accept, error.shape) < probability
    keep = lambda new, old: jnp.where(accepted[:, None] if new.ndim == 3 else accepted, new, old)  # noqa: E731
    return *jax.tree.map(keep, (moved[0], moved[2]), (x, found)), probability.mean(axis=0)
