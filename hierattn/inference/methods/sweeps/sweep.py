"""One sweep over the posterior of a law with scores: moves of all scores and of both scales that leave it as it is.

Given the parameters the networks are independent. A sweep moves all their scores at once by Hamiltonian Monte Carlo, each
network with a step size of its own, longer in rows of E that vary more, and where covariances are nearly singular along lines
of weights (`lines`); then the two parameters, which cost next to nothing:

    centred       given the scores p: score_scale and value_scale separate, 1 / scale^2 is a Gamma times the prior; each goes
                  to the other side of where it was, so that it wanders less
    along orbits  scores follow score_scale q -> q' as far as outputs allow (`orbits`), and value_scale follows
                  tr(Sigma^{-1} S)
    with keys     at finite head_dim only: score_scale with score_scale B kept, and value_scale with value_scale D kept, where
    and values    B and D are the random factors of keys and values; outputs do not notice, so that this costs nothing

At finite head_dim a trajectory of all networks together with both scales (`joint`) takes the place of those of each network,
which only find its steps: given latents that are hardly seen, scales creep. An unknown kernel moves together with both
(`kernels`). Every move leaves the posterior as it is. They are interwoven and mix where each alone would be slow (Yu and Meng
2011). The integrator turns (E, momentum) exactly under the Gaussian prior and kicks with the likelihood's gradient.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hierattn.inference.latent.heads import Heads
from hierattn.inference.latent.latents import Latents, main, squares, with_main
from hierattn.inference.likelihood import Data, Terms, covariance, log_likelihood, log_prior, terms, terms_and_gradient
from hierattn.inference.methods.sweeps.directions import Lines
from hierattn.inference.methods.sweeps.joint import adapted, in_single, move_jointly
from hierattn.inference.methods.sweeps.kernels import move_kernel
from hierattn.inference.methods.sweeps.lines import move_along_lines
from hierattn.inference.methods.sweeps.orbits import POWERS, move_along_orbit
from hierattn.inference.methods.sweeps.rows import move_parts_of_rows
from hierattn.inference.methods.sweeps.state import FOLLOWED, Draws, Prior, State, followed, steps_after
from hierattn.inference.methods.sweeps.trajectories import kicked, turned, turns_of

TARGET_ORBIT = 0.35  # acceptance rate
REFLECTED = 0.95  # of the way to the other side that a scale goes
OWN_LEAPS, SHORTER = 4, 3  # while steps are adapted, beside trajectories of everything, which are so many times shorter
DIVERGED = 1000.0  # error of the energy
LINES_A_TOKEN, PARTS_A_TOKEN = 20, 12  # moves along lines, and of parts of rows, in a sweep, for each token
SIGMA_EVERY = 10  # sweeps between records of Sigma
RECORDS = 5  # of Sigma in a chunk


def move_scores(
    data: Data, state: State, momentum: Latents, uniforms: Float[Array, "2 network"], leaps: Any
) -> tuple[State, Terms, Float[Array, " network"], Bool[Array, " network"]]:
    """One trajectory of every network; also terms, acceptance probabilities, and whether the energy went astray."""
    q, o = jnp.exp(state.log_q), jnp.exp(state.log_o)
    step = jnp.exp(state.log_step) * (0.7 + 0.4 * uniforms[0])
    turns = turns_of(state.E, step, state.variance)

    def leap(i: Any, moving: tuple) -> tuple:
        """A kick (half of one at both ends), and a turn unless this is the end."""
        E, momentum, first, _ = moving
        found, gradient = terms_and_gradient(data, E, q, o)
        share, last = jnp.where((i == 0) | (i == leaps), 0.5, 1.0), i == leaps
        E, momentum = turned(turns, E, kicked(turns, momentum, gradient, share), last)
        return E, momentum, jax.tree.map(lambda new, old: jnp.where(i == 0, new, old), found, first), found

    def energy(E: Latents, momentum: Latents, found: Terms) -> Array:
        return squares(momentum) / 2 - log_prior(data, E) - log_likelihood(data, found, o)

    nothing = Terms(*2 * (jnp.zeros_like(state.log_step),))
    E, after, first, last = jax.lax.fori_loop(0, leaps + 1, leap, (state.E, momentum, nothing, nothing))
    error = energy(E, after, last) - energy(state.E, momentum, first)
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    probability = jnp.exp(-jnp.maximum(error, 0))
    accepted = uniforms[1] < probability
    found = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), last, first)
    E = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), E, state.E)
    return state._replace(E=E), found, probability, error > DIVERGED


def move_adapting(
    data: Data, state: State, momentum: Latents, uniforms: Float[Array, "2 network"], gain: Any, leaps: Any
) -> tuple[State, Terms, Float[Array, " network"], Bool[Array, " network"]]:
    """The same, and what steps follow."""
    state, found, probability, diverged = move_scores(data, state, momentum, uniforms, leaps)
    state = followed(data, state, jnp.minimum(gain, FOLLOWED))
    return state._replace(log_step=steps_after(state.log_step, probability, diverged, gain)), found, probability, diverged


def move_centred(data: Data, prior: Prior, state: State, found: Terms, z: Array, log_uniforms: Array) -> State:
    """Parameters given the scores p, one after the other; the scale of values alone where scores are not linear in E."""
    t, _, networks = data.S.shape
    E, trace, log_q = main(state.E), jnp.sum(found.trace), state.log_q
    if linear(data):
        of_scores = jnp.sum(E**2) * jnp.exp(2 * state.log_q)
        log_q = _scale(state.log_q, E.size, of_scores, z[0], log_uniforms[0], lambda x: prior.of_log(x, state.log_o))
    log_o = _scale(state.log_o, networks * data.n * t, trace, z[1], log_uniforms[1], lambda x: prior.of_log(log_q, x))
    return state._replace(E=with_main(state.E, E * jnp.exp(state.log_q - log_q)), log_q=log_q, log_o=log_o)


def move_with_factors(
    data: Data, prior: Prior, state: State, found: Terms, z: Array, log_uniforms: Array
) -> tuple[State, Terms]:
    """Parameters and the random factors of keys and values against each other: score_scale B and value_scale D are kept."""
    heads, t, q, o = data.made, data.S.shape[0], state.log_q, state.log_o
    log_q = q
    if linear(data):
        number, square = heads.gaussians(state.E, "B")
        log_q = _scale(q, number, square * jnp.exp(2 * q), z[0], log_uniforms[0], lambda x: prior.of_log(x, o))
    number, square = heads.gaussians(state.E, "D")
    log_o = _scale(o, number, square * jnp.exp(2 * o), z[1], log_uniforms[1], lambda x: prior.of_log(log_q, x))
    x = heads.rescaled(heads.rescaled(state.E, "B", q - log_q), "D", o - log_o)
    found = Terms(found.logdet + 2 * t * (o - log_o), found.trace * jnp.exp(2 * (log_o - o)))
    return state._replace(E=x, log_q=log_q, log_o=log_o), found


def linear(data: Data) -> bool:
    """Are scores linear in E?"""
    return data.made is None or data.made.linear


def _scale(log_scale: Any, number: Any, squares: Any, normal: Any, log_uniform: Any, log_prior: Any) -> Any:
    """Log of the scale of `number` Gaussians with this sum of squares: g = squares / (2 scale^2) is Gamma times the prior.

    Proposed by Wilson and Hilferty's cube of a normal, which is almost that, correlated negatively with the present one (Adler
    1981), and accepted as Metropolis and Hastings would.
    """
    d = number / 2 - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def log_ratio(log_g: Any, z: Any) -> Any:
        return number / 2 * log_g - jnp.exp(log_g) + z**2 / 2 - jnp.log(1 + c * z)

    log_g = jnp.log(squares / 2) - 2 * log_scale
    here = (jnp.exp((log_g - jnp.log(d)) / 3) - 1) / c
    there = (1 - REFLECTED**2) ** 0.5 * normal - REFLECTED * here
    proposed = jnp.log(d) + 3 * jnp.log(jnp.maximum(1 + c * there, 1e-3))
    new = (jnp.log(squares / 2) - proposed) / 2
    gain = log_ratio(proposed, there) - log_ratio(log_g, here)
    return jnp.where(log_uniform < gain + log_prior(new) - log_prior(log_scale), new, log_scale)


def unless_singular(before: tuple[Array, Terms], after: tuple[Array, Terms]) -> tuple[Array, Terms]:
    """Scores and terms of every network after moves, but before them where Sigma has become singular to rounding.

    The density there is taken as zero: from a place without terms no move would lead back. Moves of one kind, all drawn in the
    same way, are reversible together, so that staying is exact.
    """
    fine = jnp.isfinite(after[1].trace) & jnp.isfinite(after[1].logdet)
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, before)


def at_kernel(data: Data, state: State) -> Data:
    """The data with the kernel known where the chain is."""
    return data if state.kernel is None else data.unknown.at(data, state.kernel.theta)


def parameters(state: State) -> Float[Array, " x"]:
    """Where an unknown kernel is, if there is one, and logarithms of the scales."""
    theta = jnp.zeros(0) if state.kernel is None else state.kernel.theta
    return jnp.concatenate([theta, jnp.stack([state.log_q, state.log_o])])


def at_parameters(state: State, E: Latents, x: Float[Array, " x"]) -> State:
    """The chain at other latents and parameters."""
    kernel = None if state.kernel is None else state.kernel._replace(theta=x[:-2])
    return state._replace(E=E, log_q=x[-2], log_o=x[-1], kernel=kernel)


def move_unknown(data: Data, prior: Prior, state: State, rng_key: Array, gain: Any) -> State:
    """An unknown kernel and both scales."""
    weight = jnp.where(gain > 0, 3 / (state.sweep + 10.0), 0)
    E, x, kernel = move_kernel(data, prior.of_log, state.E, parameters(state), state.kernel, rng_key, gain, weight)
    return at_parameters(state, E, x)._replace(kernel=kernel)


def _all_together(
    data: Data, prior: Prior, state: State, rng_key: Array, leaps: Any, gain: Any
) -> tuple[State, Terms, Array, Array]:
    """A trajectory of all latents and parameters; also terms, its acceptance probability, and did its energy go astray?"""

    def log_prior_of_parameters(x: Array) -> Array:
        return prior.of_log(x[-2], x[-1]) + (0.0 if data.unknown is None else data.unknown.log_prior(x[:-2]))

    steps = jnp.exp(state.log_step), state.variance
    E, x, found, error, g = move_jointly(
        data, log_prior_of_parameters, state.E, parameters(state), *steps, state.joint, rng_key, leaps
    )
    probability, weight = jnp.exp(-jnp.maximum(error, 0)), jnp.where(gain > 0, jnp.minimum(0.2, 3 / (state.sweep + 10.0)), 0)
    joint = adapted(state.joint, probability, g, gain, weight)
    return at_parameters(state, E, x)._replace(joint=joint), found, probability, error > DIVERGED


def shorter(leaps: Any) -> Any:
    """An even number of steps, SHORTER times fewer."""
    return -(-leaps // (2 * SHORTER)) * 2


def sweep(
    data: Data, lines: Lines | None, prior: Prior, state: State, rng_key: Array, leaps: Any, adapting: Any
) -> tuple[State, tuple]:
    """One sweep over scores and parameters. While adapting, step sizes follow the acceptance, and where E goes."""
    observed, data = data, at_kernel(data, state)
    key_normal, key_uniform = jax.random.split(jax.random.fold_in(rng_key, state.sweep))
    heads = data.made if isinstance(data.made, Heads) else None
    networks, extra = data.S.shape[-1], 2 + len(POWERS) + (2 if heads is not None else 0)
    z = jax.random.normal(key_normal, (data.latent_dim * networks + extra,))
    momentum, z = data.shaped(z[extra:].reshape(-1, networks)), z[:extra]
    uniforms = jax.random.uniform(key_uniform, (2 * networks + extra,))
    log_uniforms, uniforms = jnp.log(uniforms[:extra]), uniforms[extra:].reshape(2, networks)
    gain = jnp.where(adapting, 2 / (state.sweep + 10.0) ** 0.6, 0)
    if state.joint is None:
        state, found, probability, diverged = move_adapting(data, state, momentum, uniforms, gain, leaps)
    if lines is not None:
        scales, keys = (jnp.exp(state.log_q), jnp.exp(state.log_o)), jax.random.split(jax.random.fold_in(key_uniform, 0))
        kinds = (move_parts_of_rows, PARTS_A_TOKEN), (move_along_lines, LINES_A_TOKEN)
        for key, (move, a_token) in zip(keys, kinds, strict=True):
            moved = move(data, lines, state.E, *scales, key, a_token * data.S.shape[0])
            E, found = unless_singular((state.E, found), moved)
            state = state._replace(E=E)
    if state.joint is not None:
        each = partial(move_adapting, leaps=OWN_LEAPS)
        alone = in_single(each) if data.rounded else each
        of_each = lambda state: alone(data, state, momentum, uniforms, gain)[0]  # noqa: E731
        state = jax.lax.cond(adapting, of_each, lambda state: state, state)
        leaps, key = jnp.where(adapting, shorter(leaps), leaps), jax.random.fold_in(key_uniform, 2)
        state, found, probability, diverged = _all_together(observed, prior, state, key, leaps, gain)
        data = at_kernel(observed, state)
    state = move_centred(data, prior, state, found, z[:2], log_uniforms[:2])

    def follow(i: Any, state_and_terms: tuple) -> tuple:
        state, found = state_and_terms
        state, found, accepted = move_along_orbit(data, lines, prior, state, found, i, z[2 + i], log_uniforms[2 + i])
        steps = state.log_orbit_step.at[i].add(gain * (accepted - TARGET_ORBIT))
        return state._replace(log_orbit_step=steps), found

    state, found = jax.lax.fori_loop(0, len(POWERS), follow, (state, found))
    if heads is not None:
        state, found = move_with_factors(data, prior, state, found, z[-2:], log_uniforms[-2:])
    of_kernel, theta = 0.0, jnp.zeros(0)
    if state.kernel is not None:
        state = move_unknown(observed, prior, state, jax.random.fold_in(key_uniform, 1), gain)
        data, theta = at_kernel(observed, state), state.kernel.theta
        found, of_kernel = terms(data, state.E, jnp.exp(state.log_q)), observed.unknown.log_prior(theta)
    likelihood = jnp.sum(log_likelihood(data, found, jnp.exp(state.log_o)))
    density = likelihood + jnp.sum(log_prior(data, state.E)) + prior.of_log(state.log_q, state.log_o) + of_kernel
    kept = state.log_q, state.log_o, density, probability.mean(), diverged.sum(), theta
    return state._replace(sweep=state.sweep + 1), kept


@partial(jax.jit, static_argnames="records")
def chunk(
    data: Data, lines: Lines | None, prior: Prior, states: State, rng_keys: Array, leaps: Any, adapting: Any, records: int
) -> tuple[State, Draws]:
    """`records` times SIGMA_EVERY sweeps of some chains (first axis)."""

    def one_chain(state: State, rng_key: Array) -> tuple[State, Draws]:
        def one_record(state: State, _: None) -> tuple[State, tuple]:
            one_sweep = lambda state, _: sweep(data, lines, prior, state, rng_key, leaps, adapting)  # noqa: E731
            state, kept = jax.lax.scan(one_sweep, state, length=SIGMA_EVERY)
            Sigma = covariance(at_kernel(data, state), state.E, jnp.exp(state.log_q))
            return state, (kept, jnp.exp(2 * state.log_o) * Sigma)

        state, (kept, Sigma) = jax.lax.scan(one_record, state, length=records)
        return state, Draws._make([*(x.reshape(records * SIGMA_EVERY, *x.shape[2:]) for x in kept), Sigma])

    return jax.vmap(one_chain)(states, rng_keys)
