"""The NumPyro model of a program: its sites, its draws, its densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import condition, seed, trace
from numpyro.infer import Predictive
from numpyro.infer.util import log_density
from scipy import stats

from analysis import programs
from hierattn import Architecture, InputError, Law, kernels
from hierattn.law.distributions import Outputs, Scores
from hierattn.netsor import Program, dot, matrix, output, vector
from hierattn.netsor.limit import Limit
from hierattn.netsor.model import model
from tests.netsor.sharing import crossed
from tests.statistics import same_joint_law, same_second_moments


def test_density_of_attention_is_that_of_the_law():
    """Scores and outputs, against the distributions that the models of attention use."""
    K, layer = kernels.activation("relu", 3), Architecture(heads=2, sigma_q=1.6, sigma_v=1.3)
    with jax.enable_x64(True):
        law = Law(layer, K)
        p, y = law.sample_scores(jax.random.key(0), 5), law.sample(jax.random.key(0), 5, 4)
        limit, sites = Limit(programs.attention(3, 2, "relu", 1.6, 1.3)), {}
        assert limit.linear

        @jax.jit
        def densities(p, y):
            found, drawn = log_density(model, (limit,), {"outputs": y}, {"p": p})
            sites.update(drawn)
            return found, Scores(law).log_prob(p).sum() + Outputs(law, p).log_prob(jnp.moveaxis(y, -1, 0)).sum()

        found, known = densities(p, y)
        assert set(sites) >= {"p", "y"}
        assert float(found) == pytest.approx(float(known), abs=1e-9)
        assert sites["p"]["value"].shape == (5, 2, 3, 3)


def test_draws_are_those_of_the_limit():
    limit = Limit(programs.cross_attention())
    drawn = Predictive(model, num_samples=1)(jax.random.key(0), limit, networks=4000, coordinates=2)
    y, p = np.moveaxis(np.asarray(drawn["y"][0]), 0, -1), np.asarray(drawn["p"][0])
    assert (y.shape, p.shape) == ((4000, 2, 2), (4000, 2, 3))
    assert same_joint_law(y, limit.sample(jax.random.key(1), 4000, 2), np.random.default_rng(0))
    assert same_second_moments(p, limit.sample_scores(jax.random.key(1), 4000))
    assert not same_second_moments(p, 1.15 * np.asarray(limit.sample_scores(jax.random.key(1), 4000)))


def test_correlated_families_of_scalars_have_sites_of_their_own():
    """Crossed matrices: q given p; the joint density is that of a Gaussian in two dimensions."""
    with jax.enable_x64(True):
        limit = Limit(crossed())
        assert limit.linear

        @jax.jit
        def draw():
            sites = trace(seed(model, 0)).get_trace(limit, networks=3, coordinates=2)
            density = sum(sites[name]["fn"].log_prob(sites[name]["value"]) for name in "pq")
            return {name: sites[name]["value"] for name in "pqy"}, density

        drawn, found = draw()
        p, q = (np.asarray(drawn[name]) for name in "pq")
        known = stats.multivariate_normal(cov=limit.kappa_prime.value).logpdf(np.stack([p, q], 1))
        np.testing.assert_allclose(found, known, rtol=1e-10)
    assert drawn["y"].shape == (2, 3, 1)


def bounded(p, g):
    return jnp.tanh(p * g)


def test_outputs_that_are_not_linear_follow_from_their_gaussians():
    h = vector("h")
    p, g = dot(matrix("A") @ h, matrix("B") @ h), matrix("V") @ h
    limit = Limit(Program("tanh", output(bounded, p, g), p=p, g=g))
    assert not limit.linear

    @jax.jit
    def draw():
        sites = trace(seed(model, 1)).get_trace(limit, networks=4, coordinates=3)
        held = trace(seed(condition(model, {"p": jnp.zeros(4)}), 1)).get_trace(limit, networks=4, coordinates=3)
        return *(sites[name]["value"] for name in "pgy"), held["y"]["value"]

    p, g, y, held = map(np.asarray, draw())
    assert g.shape == (3, 4)
    np.testing.assert_allclose(y[..., 0], np.tanh(p * g), rtol=1e-6)
    assert np.all(held == 0)
    with pytest.raises(InputError, match="outputs: expected None, as these outputs are not linear"):
        seed(model, 0)(limit, outputs=np.zeros((4, 1, 3)))


def test_a_program_without_scalars_is_a_gaussian():
    limit = Limit(programs.residual_mlp())
    assert limit.linear
    y = np.random.default_rng(0).normal(size=(2, 2, 3))
    with jax.enable_x64(True):
        found = jax.jit(lambda y: log_density(model, (limit,), {"outputs": y}, {})[0])(y)
    known = stats.multivariate_normal(cov=limit.kappa.value).logpdf(np.moveaxis(y, 1, -1)).sum()
    assert float(found) == pytest.approx(known, abs=1e-9)
