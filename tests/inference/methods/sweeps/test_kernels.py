"""Moves of an unknown kernel are exact: they leave the joint law of kernel, scales, scores and data as it is."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture
from hierattn.inference.latent.unknown import Unknown
from hierattn.inference.likelihood import ARRAYS, Data, covariance, log_likelihood, prepare, terms
from hierattn.inference.methods.sweeps import joint as together
from hierattn.inference.methods.sweeps import kernels, sweep
from tests.inference.mutants import mutant
from tests.statistics import mean_agrees
from tests.variants import variants

pytestmark = pytest.mark.usefixtures("float64")
M, S, H, N = 3, 3, 2, 4
REPLICATES, MOVES = 3000, 3
PRIOR = sweep.Prior(dist.LogNormal(0.0, 0.5), dist.LogNormal(0.3, 0.4), 1.7)
LAYERS = {
    "one kernel": (Architecture(heads=H, mask="causal"), False),
    "two kernels, sigmoid": (Architecture(heads=H, score_function="sigmoid"), True),
}


@pytest.fixture(scope="module", params=variants(LAYERS, ["one kernel"]))
def joint(request):
    """Data of each replicate, E, and (theta, log_q, log_o), from their joint law; frames differ between networks."""
    layer, separate = LAYERS[request.param]
    with jax.enable_x64(True):
        unknown = Unknown(1.5, S, separate)
        data = replace(prepare(np.zeros((M, S, S)), N, layer, np.eye(S)), unknown=unknown)
        frames = np.linalg.qr(np.random.default_rng(0).normal(size=(M, S, S)))[0]
        data = replace(data, L_q=jnp.asarray(np.moveaxis(frames, 0, -1)))
        keys = jax.random.split(jax.random.key(0), 5)

        def theta(key):  # by the stick-breaking that the LKJ prior is defined with
            parts = [unknown._prior.sample(k) for k in jax.random.split(key, 1 + separate)]
            return jnp.concatenate([kernels_inverse(L) for L in parts])

        def kernels_inverse(L):
            return dist.biject_to(unknown._prior.support).inv(L)

        @jax.jit
        def drawn():
            log_q = jnp.log(PRIOR.score_scale.sample(keys[0], (REPLICATES,)))
            log_o = jnp.log(PRIOR.value_scale.sample(keys[1], (REPLICATES,)) / PRIOR.unit)
            x = jnp.column_stack([jax.vmap(theta)(jax.random.split(keys[2], REPLICATES)), log_q, log_o])
            E = jax.random.normal(keys[3], (REPLICATES, *data.latent_shape))
            z = jax.random.normal(keys[4], (REPLICATES, M, S, N))

            def squares(x, E, z):
                Sigma = covariance(unknown.at(data, x[:-2]), E, jnp.exp(x[-2])) * jnp.exp(2 * x[-1])
                y = jnp.linalg.cholesky(jnp.moveaxis(Sigma, -1, 0)) @ z
                return jnp.moveaxis(y @ y.mT, 0, -1)

            return jax.vmap(squares)(x, E, z), E, x

        S_all, E, x = drawn()
        return replace(data, S=S_all), E, x


def of_kernel(module):
    """Trajectories of kernel and scales."""

    def move(data, E, x, spread, key):
        dim = len(x) - 2
        kernel = module.Kernel(x[:dim], jnp.full(len(module.POWERS), -0.5), jnp.zeros(dim + 2), spread)
        return module.move_kernel(data, PRIOR.of_log, E, x, kernel, key, 0.0, 0.0)[:2]

    return move


def of_all(module):
    """Trajectories of everything."""

    def move(data, E, x, spread, key):
        tuned = module.Joint(jnp.log(0.35), jnp.linalg.inv(spread))
        step, variance = jnp.full(M, 0.4), jnp.linspace(0.3, 1.0, S * E.shape[2]).reshape(S, -1, 1) * jnp.ones(M)
        return module.move_jointly(data, log_prior_in(data), E, x, step, variance, tuned, key, 6)[:2]

    return move


def log_prior_in(data):
    """Of kernel and scales."""
    return lambda x: PRIOR.of_log(x[-2], x[-1]) + data.unknown.log_prior(x[:-2])


def in_law(move, joint):
    """Do functions of kernel, scales, scores and data have the same means after the moves as before?"""
    data, E, x = joint
    spread = jnp.asarray(np.cov(np.asarray(x).T)) / 9

    def of_one(data, E, x, key):
        def once(i, state):
            E, x, accepted = state
            before = x
            E, x = move(data, E, x, spread, jax.random.fold_in(key, i))
            return E, x, accepted + jnp.any(x != before)

        return jax.lax.fori_loop(0, MOVES, once, (E, x, 0))

    own_S = Data(**dict.fromkeys(ARRAYS) | {"S": 0})
    run = jax.jit(jax.vmap(of_one, in_axes=(own_S, 0, 0, 0)))
    E_after, x_after, moved = run(data, E, x, jax.random.split(jax.random.key(1), REPLICATES))
    assert np.mean(np.asarray(moved)) > 1
    assert not np.allclose(E, E_after)
    return mean_agrees(functions(data, E_after, x_after) - functions(data, E, x), 0.0)


def functions(data, E, x):
    """Of each replicate: moments of the parameters, also with sizes of data and of E."""
    E, x = np.asarray(E), np.asarray(x)
    size, across = np.log(np.einsum("riim->r", data.S)), np.asarray(data.S).sum(axis=(1, 2, 3))
    across = across / np.einsum("riim->r", data.S)
    E2, E4, rows = (E**2).sum(axis=(1, 2, 3, 4)), (E**4).sum(axis=(1, 2, 3, 4)), (E[:, :, 0] ** 2).sum(axis=(1, 2, 3))
    parts = [x, x**2, x * size[:, None], x * across[:, None], x * E2[:, None], x[:, :1] * x[:, 1:], np.stack([E2, E4, rows], 1)]
    return np.concatenate(parts, axis=1)


def test_moves_leave_the_joint_law_as_it_is(joint):
    """Differences within a replicate are tested: 0.09 standard deviations of a function at most."""
    assert in_law(of_kernel(kernels), joint)


def test_trajectories_of_everything_leave_it_too(joint):
    assert in_law(of_all(together), joint)


WRONG = [
    ("- log_prior_of_parameters(x)\n", "- log_prior_of_parameters(jnp.concatenate([0 * x[:-2], x[-2:]]))\n"),
    ("jax.random.uniform(key_accept) < jnp.exp(-error)", "jnp.isfinite(error)"),
    ("jnp.sum(push**2) / 2", "jnp.sum(push**2)"),
]


@pytest.mark.parametrize("joint", variants(LAYERS, ["one kernel"]), indirect=True)
@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_wrong_trajectories_of_everything_are_seen(joint, right, wrong):
    assert not in_law(of_all(mutant(together, right, wrong)), joint)


def test_everything_is_kicked_by_the_gradient(joint):
    """In scores and in parameters, by differences, for the first replicate."""
    all_data, E, x = joint
    data, E, x = replace(all_data, S=all_data.S[0]), E[0], x[0]

    @jax.jit
    def log_density(E, x):
        found = terms(data.unknown.at(data, x[:-2]), E, jnp.exp(x[-2]))
        return jnp.sum(log_likelihood(data, found, jnp.exp(x[-1]))) + log_prior_in(data)(x)

    def difference(E_by, x_by, h=1e-5):
        ends = [log_density(E + sign * h * E_by, x + sign * h * x_by) for sign in (1, -1)]
        return (ends[0] - ends[1]) / (2 * h)

    in_E, in_x = jax.jit(lambda E, x: together.forces(data, log_prior_in(data), E, x))(E, x)
    expected = [difference(0 * E, e) for e in jnp.eye(len(x))]
    np.testing.assert_allclose(in_x, expected, rtol=1e-5, atol=1e-6)
    along = jnp.asarray(np.random.default_rng(0).normal(size=E.shape))
    np.testing.assert_allclose(jnp.sum(in_E * along), difference(along, 0 * x), rtol=1e-5)


SLOW = pytest.mark.slow
MUTANTS = [
    ("(self.a - 1) * t * r * x[-2]", "self.a * t * r * x[-2]"),
    pytest.param("((L, r), (C, t))", "((L, t), (C, r), (C, 1))", marks=SLOW),
    pytest.param("_scaled(-self.a * x[-2], _inverse(self", "_scaled(-x[-2], _inverse(self", marks=SLOW),
    pytest.param("product(transposed(self.data.L_q)[None]", "product(self.data.L_q[None]", marks=SLOW),
    pytest.param(
        "x: along.log_density(held, x) + data.unknown.log_prior(x[:-2])",
        "x: along.log_density(held, x)",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("joint", variants(LAYERS, ["one kernel"]), indirect=True)
@pytest.mark.parametrize(("right", "wrong"), MUTANTS)
def test_a_wrong_move_is_seen(joint, right, wrong):
    assert not in_law(of_kernel(mutant(kernels, right, wrong)), joint)


def test_the_gradient_of_terms_is_that_of_plain_algebra():
    """Log determinants and traces, by differentiation of NumPy-like code."""
    from hierattn.inference.likelihood import terms_of

    rng = np.random.default_rng(0)
    S_all, F = rng.normal(size=(2, 4, 3, 3))
    Sigma, squares = jnp.asarray(F @ F.swapaxes(1, 2) + np.eye(3)), jnp.asarray(S_all @ S_all.swapaxes(1, 2))

    def plain(Sigma):
        return jnp.sum(jnp.linalg.slogdet(Sigma)[1] + 2 * jnp.trace(jnp.linalg.solve(Sigma, squares), axis1=1, axis2=2))

    def ours(Sigma):
        found = terms_of(jnp.moveaxis(squares, 0, -1), jnp.moveaxis(Sigma, 0, -1))
        return jnp.sum(found.logdet + 2 * found.trace)

    expected, found = jax.grad(plain)(Sigma), jax.grad(ours)(Sigma)
    np.testing.assert_allclose(found, (expected + expected.mT) / 2, rtol=1e-9, atol=1e-10)
