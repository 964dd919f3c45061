"""One trajectory of the latents of all networks together with all parameters, by Hamiltonian Monte Carlo.

Where most latents are hardly seen, as at finite head_dim, parameters given the latents are known much better than without them,
and moves of one given the other creep. Here every network keeps a step size of its own, all times a common factor, parameters

    x = (theta, log score_scale, log value_scale)        theta: where an unknown kernel is, if it is unknown

have momenta too, and there is one acceptance for everything. They are kicked by the gradient of the log density at fixed
latents; scores are score_scale times what is linear in E, so that in log score_scale it is <E, d/dE>. Kicks alternate between
two sizes, with which the energy errs less than with equal ones (Blanes, Casas and Sanz-Serna 2014). Forces, and
latents on the way, may be rounded to single precision; energies are compared in double.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.inference.latent.latents import Latents, main, squares
from hierattn.inference.likelihood import (
    Data,
    Terms,
    log_likelihood,
    log_prior,
    terms,
    terms_and_gradient_with_scale,
    terms_and_gradients,
)
from hierattn.inference.methods.sweeps.state import State
from hierattn.inference.methods.sweeps.trajectories import kicked, turned, turns_of

TARGET = 0.85  # acceptance rate of the shorter trajectories while steps are adapted
LONGEST = 5.0  # kick of the parameters, in typical momenta
END = 2 * 0.21178  # share of a kick at both ends


class Joint(NamedTuple):
    """What steps are tuned by: log of the factor common to all, and the mean of g g', g the gradient in the parameters.

    That mean is what they are known by, given the latents: E[g g'] = -E[second derivatives].
    """

    log_factor: Float[Array, ""]
    known: Float[Array, "x x"]


def first(data: Data) -> Joint:
    """Before anything was seen: as if all were known as well as value_scale, which is more than they can be."""
    t, _, networks = data.S.shape
    dim = 2 if data.unknown is None else 2 + data.unknown.dim
    return Joint(jnp.log(0.5) + 0.0 * data.n, 2 * networks * t * data.n * jnp.eye(dim))


def forces(
    data: Data, log_prior_of_parameters: Callable, E: Latents, x: Float[Array, " x"]
) -> tuple[Latents, Float[Array, " x"]]:
    """The gradient of the log likelihood in latents, and that of the log density in x."""
    q, o, (t, _, networks) = jnp.exp(x[-2]), jnp.exp(x[-1]), data.S.shape
    of = in_single if data.rounded else lambda function: function
    if data.unknown is None:
        found, gradient, in_scores = of(terms_and_gradient_with_scale)(data, E, q, o)
        in_kernel = jnp.zeros(0)
    else:
        (L_q, L_k, K), back = jax.vjp(lambda theta: data.unknown.made(data, theta), x[:-2])
        known = replace(data, L_q=L_q, L_k=L_k, K=K, unknown=None)
        found, gradient, in_factors = of(terms_and_gradients)(known, E, q, o)
        (in_kernel,) = back(tuple(in_factors))
        in_scores = jnp.sum(main(E) * main(gradient))
    in_o = jnp.sum(found.trace) / o**2 - networks * data.n * t
    g = jnp.concatenate([in_kernel, jnp.stack([in_scores, in_o])]) + jax.grad(log_prior_of_parameters)(x)
    return jax.tree.map(lambda a, b: a.astype(b.dtype), gradient, E), jnp.where(jnp.isfinite(g), g, 0)


def in_single(function: Callable) -> Callable:
    """The same function, computed in single precision: twice as many numbers at a time, and half of them to move."""
    return lambda *arguments: cast(function(*cast(arguments, jnp.float32)), jnp.float64)


def cast(x: Any, dtype: Any) -> Any:
    """Its numbers in another precision."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, x)


def move_jointly(
    data: Data,
    log_prior_of_parameters: Callable,
    E: Latents,
    x: Float[Array, " x"],
    step: Float[Array, " network"],
    square: Float[Array, "r_q m_or_1 network"],
    joint: Joint,
    rng_key: Array,
    leaps: Any,
) -> tuple[Latents, Float[Array, " x"], Terms, Float[Array, ""], Float[Array, " x"]]:
    """Latents, x, terms, the error of the energy, and the gradient in x at the start.

    - step, square: step sizes of the networks, and variances of E that they are for, as for trajectories of their own
    - leaps: an even number
    """
    key_momentum, key_push, key_step, key_accept = jax.random.split(rng_key, 4)
    momentum = data.shaped(jax.random.normal(key_momentum, (data.latent_dim, data.S.shape[-1])))
    push = jax.random.normal(key_push, x.shape)
    factor = jnp.exp(joint.log_factor) * jax.random.uniform(key_step, minval=0.7, maxval=1.1)
    turns, C = turns_of(E, factor * step, square), factor * _inverse_root(joint.known)
    if data.rounded:
        turns, momentum = cast((turns, momentum), jnp.float32)

    def leap(i: Any, moving: tuple) -> tuple:
        """A kick (half of one at both ends), and a step unless this is the end."""
        E, x, momentum, push, start = moving
        gradient, g = forces(data, log_prior_of_parameters, E, x)
        share, last = share_of(i, leaps), i == leaps
        kick = C.T @ g
        push = push + share * kick * jnp.minimum(1, LONGEST / jnp.maximum(jnp.linalg.norm(kick), 1e-300))
        E, momentum = turned(turns, E, kicked(turns, momentum, gradient, share), last)
        x = x + jnp.where(last, 0.0, 1.0) * (C @ push)
        return E, x, momentum, push, jnp.where(i == 0, g, start)

    def energy(E: Latents, x: Array, momentum: Latents, push: Array, found: Terms) -> Array:
        of_latents = squares(momentum) / 2 - log_prior(data, E) - log_likelihood(data, found, jnp.exp(x[-1]))
        return jnp.sum(of_latents) + jnp.sum(push**2) / 2 - log_prior_of_parameters(x)

    begin = jax.tree.map(lambda a, b: a.astype(b.dtype), E, momentum), x, momentum, push, jnp.zeros_like(x)
    E_end, x_end, momentum_end, push_end, g = jax.lax.fori_loop(0, leaps + 1, leap, begin)
    E_end, momentum, momentum_end = (cast(each, jnp.float64) for each in (E_end, momentum, momentum_end))
    before, after = found_at(data, E, x), found_at(data, E_end, x_end)
    error = energy(E_end, x_end, momentum_end, push_end, after) - energy(E, x, momentum, push, before)
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    accepted = jax.random.uniform(key_accept) < jnp.exp(-error)
    E, x, found = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), (E_end, x_end, after), (E, x, before))
    return E, x, found, error, g


def found_at(data: Data, E: Latents, x: Float[Array, " x"]) -> Terms:
    """Terms of latents and parameters."""
    return terms(data if data.unknown is None else data.unknown.at(data, x[:-2]), E, jnp.exp(x[-2]))


def share_of(i: Any, leaps: Any) -> Float[Array, ""]:
    """Of a kick before step i of so many: twice that of the ends and what it leaves of two, in turn."""
    return jnp.where((i == 0) | (i == leaps), END, jnp.where(i % 2 == 0, 2 * END, 2 - 2 * END))


def adapted(joint: Joint, probability: Any, g: Float[Array, " x"], gain: Any, weight: Any) -> Joint:
    """After a trajectory accepted with this probability, with gradient g in x where it began."""
    known = joint.known + weight * (g[:, None] * g - joint.known)
    return Joint(joint.log_factor + gain * (probability - TARGET), known)


def begun(data: Data, states: State) -> State:
    """States of chains, with what steps are tuned by."""
    chains, E = len(states.log_q), main(states.E)
    tuned, each = jax.tree.map(lambda x: jnp.stack([x] * chains), first(data)), jnp.ones((chains, *E.shape[2:]), E.dtype)
    return states._replace(joint=tuned, square=each, slope=0 * each)


def pooled(states: State) -> State:
    """States of chains, each with the mean over chains of what its steps are tuned by."""
    tuned = states.log_step, states.square, states.slope, states.joint
    log_step, square, slope, joint = jax.tree.map(lambda x: np.broadcast_to(np.mean(x, axis=0), x.shape), tuned)
    return states._replace(log_step=log_step, square=square, slope=slope, joint=joint)


def _inverse_root(known: Float[Array, "x x"]) -> Float[Array, "x x"]:
    """C with C C' the inverse."""
    L = jnp.linalg.cholesky(known + 1e-6 * jnp.diag(jnp.diagonal(known)))
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(len(L)), lower=True).T
