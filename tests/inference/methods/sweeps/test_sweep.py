"""Sampling network by network is exact: moves leave the joint law as it is."""

from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture, kernels
from hierattn.inference.latent.latents import main
from hierattn.inference.likelihood import ARRAYS, Data, covariance, prepare, terms
from hierattn.inference.methods import networkwise
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.protocol import Run
from hierattn.inference.methods.sweeps import state, trajectories
from hierattn.inference.methods.sweeps import sweep as sweeps
from tests.inference.drawn import outputs
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees

pytestmark = pytest.mark.usefixtures("float64")
M, S, H, N = 3, 3, 2, 4
REPLICATES, MOVES = 3000, 4
LAYER, K = Architecture(heads=H), kernels.equicorrelated(S, 0.3)
PRIOR = sweeps.Prior(dist.Uniform(0.5, 2.5), dist.LogNormal(0.3, 0.4), 1.7)
EMPTY = np.zeros((M, S, S))
OWN_S = Data(**dict.fromkeys(ARRAYS) | {"S": 0})  # what vmap maps: every replicate has data of its own


@partial(jax.jit, static_argnums=0)
def of_all(function, data, *batches):
    """A function of each replicate's data (its S is its own) and of more."""
    return jax.vmap(function, in_axes=(OWN_S, *(0 for _ in batches)))(data, *batches)


def all_terms(data, state):
    return terms(data, state.E, jnp.exp(state.log_q))


def squares(data, E, log_q, log_o, y):
    """Sums of y y' for y of the law, from standard normals."""
    Sigma = jnp.exp(2 * log_o) * jnp.moveaxis(covariance(data, E, jnp.exp(log_q)), -1, 0)
    y = jnp.linalg.cholesky(Sigma) @ y
    return jnp.moveaxis(y @ y.mT, 0, -1)


@pytest.fixture(scope="module")
def joint():
    with jax.enable_x64(True):
        return drawn_joint(LAYER)


@pytest.fixture(scope="module")
def joint_of_heads():
    """At finite head_dim, one set of keys and values for both heads."""
    with jax.enable_x64(True):
        return drawn_joint(LAYER.replace(head_dim=4, key_value_heads=1))


def drawn_joint(layer):
    """Draws from the joint law of parameters, scores and data: the data, states, and terms of the likelihood."""
    with jax.enable_x64(True):
        data, keys = prepare(EMPTY, N, layer, K), jax.random.split(jax.random.key(0), 4)
        log_q = jnp.log(PRIOR.score_scale.sample(keys[0], (REPLICATES,)))
        log_o = jnp.log(PRIOR.value_scale.sample(keys[1], (REPLICATES,)) / PRIOR.unit)
        E = jax.random.normal(keys[2], (REPLICATES, *data.latent_shape))
        if data.made is not None:
            E = jax.jit(jax.vmap(data.drawn))(jax.random.split(keys[2], REPLICATES))
        y = jax.random.normal(keys[3], (REPLICATES, M, S, N))
        data = replace(data, S=jnp.zeros((REPLICATES, *data.S.shape)))
        data = replace(data, S=of_all(squares, data, E, log_q, log_o, y))
        steps, orbits = jnp.full((REPLICATES, M), jnp.log(0.3)), jnp.full((REPLICATES, 3), jnp.log(0.3))
        rows = jnp.broadcast_to(jnp.array([1.0, 0.5, 0.1])[:, None, None], (REPLICATES, S, 1, M))  # steps of their own
        state = sweeps.State(E, log_q, log_o, steps, orbits, rows, jnp.zeros(REPLICATES, int))
        return data, state, of_all(all_terms, data, state)


@lru_cache
def compiled(move):
    """MOVES of a move(data, prior, state, terms, key, normals, uniforms, *more), for all replicates."""

    def several(data, prior, state, found, key, normals, uniforms, *more):
        def once(i, now):
            return move(data, prior, *now, key, normals[i], uniforms[i], *more)

        return jax.lax.fori_loop(0, MOVES, once, (state, found))

    @jax.jit
    def all_moves(data, prior, state, found, keys, normals, uniforms, more):
        each = jax.vmap(several, in_axes=(OWN_S, None, 0, 0, 0, 0, 0, *(None for _ in more)))
        return each(data, prior, state, found, keys, normals, uniforms, *more)

    return all_moves


def in_law(joint, move, *more):
    """Do functions of state and data have the same means after MOVES as before?

    Differences within a replicate are tested, so that little is seen: 0.09 standard deviations of a function if moves were
    independent draws, and less otherwise.
    """
    data, state, found = joint
    rng, keys = np.random.default_rng(1), jax.random.split(jax.random.key(1), REPLICATES)
    normals, uniforms = rng.normal(size=(REPLICATES, MOVES, data.latent_dim * M)), rng.random((REPLICATES, MOVES, 2 * M))
    after = compiled(move)(data, PRIOR, state, found, keys, normals, uniforms, more)
    assert not np.allclose(after[0].log_q, state.log_q) or not np.allclose(main(after[0].E), main(state.E))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), after[1], of_all(all_terms, data, after[0]))
    return mean_agrees(functions(data, *after) - functions(data, state, found), 0.0)


def functions(data, state, found):
    """Of each replicate (first axis): moments of the parameters, also with the data's, and with the scores."""
    q, o, size = np.asarray(state.log_q), np.asarray(state.log_o), np.log(np.asarray(data.S).sum(axis=(1, 2, 3)))
    trace = np.asarray(found.trace).sum(axis=1) * np.exp(-2 * o)
    parts = [np.sum(np.asarray(x) ** 2, axis=(1, 2, 3, 4)) for x in jax.tree.leaves(state.E)]  # E, and more where there is
    E, logdet = parts[0], np.asarray(found.logdet).sum(axis=1)
    inside = np.asarray(PRIOR.score_scale.support(np.exp(q)), float)
    more = [f for x in parts[1:] for f in (x, q * x, o * x, size * x)]
    return np.stack([q, q**2, o, o**2, q * o, q * size, o * size, trace, E, q * E, logdet, inside, *more], axis=1)


def scores(module):
    def move(data, prior, state, found, key, normals, uniforms):
        return module.move_scores(data, state, data.shaped(normals.reshape(-1, M)), uniforms.reshape(2, M), 4)[:2]

    return move


def centred(module):
    def move(data, prior, state, found, key, normals, uniforms):
        return module.move_centred(data, module.Prior(*prior), state, found, normals[:2], jnp.log(uniforms[:2])), found

    return move


def with_factors(module):
    def move(data, prior, state, found, key, normals, uniforms):
        random = normals[:2], jnp.log(uniforms[:2])
        return module.move_with_factors(data, module.Prior(*prior), state, found, *random)

    return move


def sweep(data, prior, state, found, key, normals, uniforms):
    state, _ = sweeps.sweep(data, None, prior, state, key, 4, False)
    return state, all_terms(data, state)


def test_moves_of_the_scores_leave_the_joint_law_as_it_is(joint):
    assert in_law(joint, scores(sweeps))


def test_centred_moves_leave_the_joint_law_as_it_is(joint):
    assert in_law(joint, centred(sweeps))


def test_sweeps_leave_the_joint_law_as_it_is(joint):
    assert in_law(joint, sweep)


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(scores(sweeps), id="scores", marks=pytest.mark.slow),
        pytest.param(with_factors(sweeps), id="with factors", marks=pytest.mark.slow),
        pytest.param(sweep, id="sweep"),  # both of them, and more
    ],
)
def test_moves_at_finite_head_dim_leave_the_joint_law_as_it_is(joint_of_heads, move):
    assert in_law(joint_of_heads, move)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("square * jnp.exp(2 * o), z[1]", "square, z[1]"),
        pytest.param("_scale(q, number, square", "_scale(q, 0.9 * number, square", marks=pytest.mark.slow),
        pytest.param("_scale(o, number, square", "_scale(o, 0.9 * number, square", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_move_of_factors_is_seen(joint_of_heads, right, wrong):
    assert not in_law(joint_of_heads, with_factors(mutant(sweeps, right, wrong)))


MUTANTS = [  # one of each move every time, the others by `make verify`
    (centred, "gain + log_prior(new) - log_prior(log_scale)", "gain"),
    (scores, "(i == 0) | (i == leaps), 0.5, 1.0)", "(i == 0), 0.5, 1.0)"),
]
MORE_MUTANTS = [
    (centred, "+ z**2 / 2 - jnp.log(1 + c * z)", "+ z**2 / 2 + jnp.log(1 + c * z)"),
    (centred, "(1 - REFLECTED**2) ** 0.5 * normal", "(1 - REFLECTED) ** 0.5 * normal"),
    (centred, "networks * data.n * t, trace", "networks * data.n, trace"),
    (centred, "inside = self.score_scale.support(q) & self.value_scale.support(o)", "inside = True"),
]
MUTANTS += [pytest.param(*each, marks=pytest.mark.slow) for each in MORE_MUTANTS]


@pytest.mark.parametrize(("move", "right", "wrong"), MUTANTS)
def test_a_wrong_move_is_seen(joint, move, right, wrong):
    assert not in_law(joint, move(mutant(sweeps, right, wrong)))


def test_kicks_are_bounded_and_nothing_else():
    """Along the kick, network by network; where a gradient is no number there is none."""
    kick = np.random.default_rng(0).normal(size=(2, 3, 2, 4)) * np.array([0.1, 1.0, 1e6, 1.0])
    kick[0, 0, 0, 3] = np.nan
    found, longest = np.asarray(trajectories.bounded(jnp.asarray(kick))), trajectories.LARGEST_KICK * np.sqrt(12)
    np.testing.assert_array_equal(found[..., :2], kick[..., :2])
    assert np.linalg.norm(found[..., 2]) == pytest.approx(longest)
    np.testing.assert_allclose(found[..., 2] / longest, kick[..., 2] / np.linalg.norm(kick[..., 2]))
    np.testing.assert_array_equal(found[..., 3], np.nan_to_num(kick[..., 3]))


def test_networks_whose_covariance_becomes_singular_stay_where_they_were():
    E, found = np.arange(6.0).reshape(1, 1, 2, 3), sweeps.Terms(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    moved = E + 10, sweeps.Terms(np.array([7.0, np.nan, 8.0]), np.array([np.inf, 9.0, 9.0]))
    after, terms_after = sweeps.unless_singular((E, found), moved)
    np.testing.assert_array_equal(after, np.where([False, False, True], E + 10, E))
    np.testing.assert_array_equal(terms_after, [[1, 2, 8], [4, 5, 9]])


def test_steps_that_went_astray_at_first_are_long_again_soon():
    """Five bad sweeps cost a factor e^7, most of it regained in the warm-up; without a bound they would cost e^47."""
    step = 0.0
    for k in range(400):
        astray = float(k < 5)
        probability = 0.0 if astray else 1.0 if step < -1 else 0.6
        now = (jnp.array([x]) for x in (step, probability, astray))
        step = float(sweeps.steps_after(*now, 2 / (k + 10.0) ** 0.6)[0])
        assert step > -8
    assert step > -4


def test_trajectories_pass_walls_of_singular_covariances(monkeypatch):
    """One head and two tokens: Sigma is singular where both look alike.

    Unbounded kicks diverge more than a verdict allows, where steps are not shortened for it.
    """
    layer = Architecture(heads=1)
    y = outputs(layer, np.eye(2), 20, 8)
    data, prior = prepare(y @ y.swapaxes(1, 2), 8, layer, np.eye(2)), sweeps.Prior(*2 * [dist.LogNormal(0.0, 0.5)], 1.0)

    def diverged():
        drawn = Networkwise(warm_up=4).sample_until(data, prior, Run(0, 2), lambda draws: draws.log_q.shape[1] >= 500)
        return float(np.mean(drawn.diverged)) / 20

    monkeypatch.setattr(networkwise, "framed", lambda data: data)  # in the way are walls without frames and lines alone
    monkeypatch.setattr(networkwise, "lines_of", lambda data: None)
    assert diverged() < 1e-3
    unbounded = mutant(sweeps, "DIVERGED = 1000.0", "DIVERGED = 1e3")  # a copy
    monkeypatch.setattr(unbounded, "steps_after", mutant(state, "ASTRAY = 20.0", "ASTRAY = 0.0").steps_after)
    kicks = mutant(trajectories, "LARGEST_KICK = 1.2, 2.0", "LARGEST_KICK = 1.2, 1e9")
    monkeypatch.setattr(unbounded, "kicked", kicks.kicked)
    monkeypatch.setattr(networkwise, "chunk", unbounded.chunk)
    assert diverged() > 1e-3
