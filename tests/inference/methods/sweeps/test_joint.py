"""Trajectories of everything together are exact, and kick scales by the gradient of the log density."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn.inference.latent.latents import main
from hierattn.inference.likelihood import log_likelihood, log_prior, terms, terms_and_gradient
from hierattn.inference.methods.sweeps import joint
from hierattn.inference.methods.sweeps import sweep as sweeps
from tests.inference.methods.sweeps import test_sweep as law
from tests.inference.mutants import mutant
from tests.variants import variants

pytestmark = pytest.mark.usefixtures("float64")
LAYERS = {
    "finite head_dim": law.LAYER.replace(head_dim=4, key_value_heads=1),
    "limit law, causal, a bias": law.LAYER.replace(mask="causal", bias=np.random.default_rng(0).normal(size=(2, 3, 3))),
}
NORMED = law.LAYER.replace(head_dim=5, qk_norm="rms", qk_eps=0.1, key_value_heads=1)
LAYERS |= {"normed": NORMED}
OFTEN = variants(LAYERS, ["limit law, causal, a bias"])  # for mistakes in code that both share
TUNED = joint.Joint(np.log(0.8), np.array([[20.0, 5.0], [5.0, 40.0]]))


@pytest.fixture(scope="module", params=variants(LAYERS, LAYERS.keys() - {"normed"}))
def drawn(request):
    """Data, states and terms of replicates from their joint law, trajectories of everything tuned alike."""
    data, state, found = law.drawn_joint(LAYERS[request.param])
    with jax.enable_x64(True):
        tuned = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(state.log_q)), TUNED)
        rows, columns = state.E.E.shape[2:4] if data.made is not None else state.E.shape[2:4]
        each = jnp.linspace(0.1, 1.0, rows * columns).reshape(rows, columns, 1) * jnp.ones((len(state.log_q), 1, 1, law.M))
        return data, state._replace(joint=tuned, square=each, slope=1 / each), found


def together(module):
    def move(data, prior, state, found, key, normals, uniforms):
        x, key = jnp.stack([state.log_q, state.log_o]), jax.random.fold_in(key, state.sweep)
        steps, of_log = (jnp.exp(state.log_step), state.variance), sweeps.Prior(*prior).of_log
        log_prior = lambda x: of_log(x[-2], x[-1])  # noqa: E731
        E, x, found, _, _ = module.move_jointly(data, log_prior, state.E, x, *steps, state.joint, key, 4)
        return state._replace(E=E, log_q=x[0], log_o=x[1], sweep=state.sweep + 1), found

    return move


def test_trajectories_of_everything_leave_the_joint_law_as_it_is(drawn):
    assert law.in_law(drawn, together(joint))


@pytest.mark.slow  # moves one by one are tested every time, and whole sweeps at finite head_dim in test_sweep.py
@pytest.mark.parametrize("drawn", LAYERS, indirect=True)
def test_sweeps_with_them_leave_the_joint_law_as_it_is(drawn):
    assert law.in_law(drawn, law.sweep)


@pytest.mark.slow
@pytest.mark.parametrize("drawn", ["normed"], indirect=True)
def test_moves_for_scores_that_are_linear_would_be_seen(drawn):
    """Scores of normed queries and keys are not: keeping score_scale E would not keep them, nor the terms that come of them."""
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        law.in_law(drawn, law.centred(mutant(sweeps, "if linear(data):\n        of_scores", "if True:\n        of_scores")))


MUTANTS = [
    ("jnp.sum(push**2) / 2 - log_prior_of_parameters(x)", "jnp.sum(push**2) / 2"),
    ("jax.random.uniform(key_accept) < jnp.exp(-error)", "jnp.isfinite(error)"),
    ("squares(momentum) / 2 - log_prior", "squares(momentum) - log_prior"),
]


@pytest.mark.parametrize("drawn", OFTEN, indirect=True)
@pytest.mark.parametrize(("right", "wrong"), MUTANTS)
def test_a_wrong_trajectory_is_seen(drawn, right, wrong):
    assert not law.in_law(drawn, together(mutant(joint, right, wrong)))


def agrees(module, drawn):
    """Is the gradient of the scales that of the log density, by differences, for the first replicates?"""
    data, state, _ = drawn
    prior = sweeps.Prior(law.PRIOR.value_scale, law.PRIOR.value_scale, 1.7)  # of unbounded support

    def of_one(data, E, log_q, log_o):
        def log_density(x):
            o, found = jnp.exp(x[1]), terms(data, E, jnp.exp(x[0]))
            return jnp.sum(log_likelihood(data, found, o) + log_prior(data, E)) + prior.of_log(x[0], x[1])

        x, h = jnp.stack([log_q, log_o]), 1e-5
        differences = [(log_density(x + h * e) - log_density(x - h * e)) / (2 * h) for e in jnp.eye(2)]
        return module.forces(data, lambda x: prior.of_log(*x), E, x)[1], jnp.stack(differences)

    found, expected = law.of_all(of_one, data, state.E, state.log_q, state.log_o)
    return np.allclose(found[:50], expected[:50], rtol=1e-5, atol=1e-5)


def test_scales_are_kicked_by_the_gradient(drawn):
    assert agrees(joint, drawn)


@pytest.mark.parametrize("drawn", OFTEN, indirect=True)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("jnp.stack([in_scores, in_o])", "jnp.stack([2 * in_scores, in_o])"),
        ("jnp.sum(found.trace) / o**2", "jnp.sum(found.trace) / o"),
        (" + jax.grad(log_prior_of_parameters)(x)", ""),
    ],
)
def test_a_wrong_gradient_is_seen(drawn, right, wrong):
    assert not agrees(mutant(joint, right, wrong), drawn)


def test_forces_in_single_precision_are_nearly_those_in_double(drawn):
    data, state, _ = drawn
    x = jnp.stack([state.log_q, state.log_o], axis=-1)

    def of(rounded):
        forces = lambda data, E, x: joint.forces(replace(data, rounded=rounded), lambda x: -jnp.sum(x**2), E, x)  # noqa: E731
        return law.of_all(forces, data, state.E, x)

    exact, single = (jax.tree.leaves(of(rounded)) for rounded in (False, True))
    for a, b in zip(exact, single, strict=True):
        off, size = (np.median(np.linalg.norm(np.reshape(y, (len(y), -1)), axis=1)) for y in (a - b, a))
        assert b.dtype == np.float64
        assert 0 < off < 1e-4 * size


def test_trajectories_with_such_forces_leave_the_joint_law_too(drawn):
    move = together(joint)
    assert law.in_law(drawn, lambda data, *more: move(replace(data, rounded=True), *more))


@pytest.mark.parametrize("leaps", [2, 8, 64])
def test_kicks_add_up_to_the_length_of_a_trajectory(leaps):
    """Forwards and backwards alike: else trajectories could not be reversed."""
    shares = np.array([joint.share_of(i, leaps) for i in range(leaps + 1)])
    np.testing.assert_allclose(shares.sum(), leaps, rtol=1e-12)
    np.testing.assert_allclose(shares, shares[::-1])


def test_energies_err_less_than_with_equal_kicks():
    """Of a spring pulled out by 1, in 16 steps of .7 of its own time; equal kicks are those of ends of a half."""

    def error(shares, h=0.7):
        x, v = 1.0, 0.0
        for share in shares[:-1]:
            v -= share * h * x
            x += h * v
        v -= shares[-1] * h * x
        return abs(x**2 + v**2 - 1)

    equal = mutant(joint, "END = 2 * 0.21178", "END = 0.5")
    found, of_equal = (error([float(module.share_of(i, 16)) for i in range(17)]) for module in (joint, equal))
    assert found < 0.25 * of_equal


def test_steps_follow_what_varies_and_what_is_steep(drawn):
    """From the same place again and again: mean squares of E over heads, and of the likelihood's gradient."""
    data, state, _ = drawn
    first = jax.tree.map(lambda x: x[0], (data.S, state))
    data, state = replace(data, S=first[0]), first[1]
    follow = jax.jit(lambda state, weight: sweeps.followed(data, state, weight))
    for i in range(20):
        state = follow(state, 1 / (i + 1))
    _, gradient = jax.jit(terms_and_gradient)(data, state.E, jnp.exp(state.log_q), jnp.exp(state.log_o))
    E, g = ((np.asarray(main(x)) ** 2).mean(axis=0) for x in (state.E, gradient))
    np.testing.assert_allclose(state.square, E.clip(1e-10, 1), rtol=1e-6)
    np.testing.assert_allclose(state.slope, g, rtol=1e-6)
    np.testing.assert_allclose(state.variance**2, E.clip(1e-10, 1) / (1 + g), rtol=1e-6)
    rows = state._replace(square=state.square[:, :1], slope=None)
    np.testing.assert_allclose(follow(rows, 1.0).variance[:, 0], E.mean(axis=1).clip(1e-10, 1), rtol=1e-6)


def test_steps_of_the_scales_follow_how_well_they_are_known():
    """Gradients of a Gaussian: their mean square is the precision; C C' is the covariance."""
    precision = np.array([[30.0, 12.0], [12.0, 9.0]])
    gradients = np.random.default_rng(0).multivariate_normal(np.zeros(2), precision, 1000)
    tuned = joint.Joint(jnp.zeros(()), 1e4 * jnp.eye(2))
    for i, g in enumerate(jnp.asarray(gradients)):
        tuned = joint.adapted(tuned, joint.TARGET + 0.1 / (i + 1), g, 1.0, 3 / (i + 3))
    C = np.asarray(joint._inverse_root(tuned.known))
    np.testing.assert_allclose(C @ C.T, np.linalg.inv(precision), rtol=0.2)
    assert tuned.log_factor > 0


def test_chains_share_what_they_learn(drawn):
    """Steps of all chains are the mean; where chains are stays theirs."""
    _, state, _ = drawn
    rng = np.random.default_rng(0)
    tuned = state.joint._replace(log_factor=rng.normal(size=len(state.log_q)))
    state = state._replace(joint=tuned, log_step=rng.normal(size=state.log_step.shape))
    found = joint.pooled(state)
    np.testing.assert_allclose(found.joint.log_factor, tuned.log_factor.mean() * np.ones(len(state.log_q)))
    np.testing.assert_allclose(found.log_step, np.broadcast_to(state.log_step.mean(axis=0), state.log_step.shape))
    for name in ("E", "log_q", "log_o", "sweep"):
        assert getattr(found, name) is getattr(state, name)


@pytest.mark.parametrize("drawn", OFTEN, indirect=True)
def test_steps_stay_as_they_are_when_nothing_is_adapted_any_more(drawn):
    data, state, _ = drawn
    first = jax.tree.map(lambda x: x[0], (data.S, state))
    data, state = replace(data, S=first[0]), first[1]
    prior = sweeps.Prior(*law.PRIOR)
    once = jax.jit(lambda adapting: sweeps.sweep(data, None, prior, state, jax.random.key(0), 4, adapting)[0])
    after = {adapting: once(jnp.asarray(adapting)) for adapting in (False, True)}
    for name in ("log_step", "square", "slope", "joint"):
        before, kept, moved = (jax.tree.leaves(getattr(x, name)) for x in (state, after[False], after[True]))
        for x, same, other in zip(before, kept, moved, strict=True):
            np.testing.assert_array_equal(same, x)
            assert not np.allclose(other, x)
