"""Moves of an unknown kernel are exact: they leave the joint law of kernel, scales, scores and data as it is."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture
from hierattn.inference.latent.unknown import Unknown
from hierattn.inference.likelihood import ARRAYS, Data, covariance, prepare
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


@pytest.fixture(scope="module", params=LAYERS)
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


def in_law(module, joint):
    """Do functions of kernel, scales, scores and data have the same means after the moves as before?"""
    data, E, x = joint
    dim = x.shape[1] - 2
    spread = jnp.asarray(np.cov(np.asarray(x).T)) / 9

    def of_one(data, E, x, key):
        def once(i, state):
            E, x, accepted = state
            kernel = module.Kernel(x[:dim], jnp.full(len(module.POWERS), -0.5), jnp.zeros(dim + 2), spread)
            before = x
            E, x, _ = module.move_kernel(data, PRIOR.of_log, E, x, kernel, jax.random.fold_in(key, i), 0.0, 0.0)
            return E, x, accepted + jnp.any(x != before)

        return jax.lax.fori_loop(0, MOVES, once, (E, x, 0))

    own_S = Data(**dict.fromkeys(ARRAYS) | {"S": 0}, scores=data.scores)
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
    assert in_law(kernels, joint)


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
    assert not in_law(mutant(kernels, right, wrong), joint)


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
