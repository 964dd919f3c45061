"""Chains of the sampler: the same draws on any number of threads and at any scale, priors obeyed, one compilation."""

import os

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture, InputError, Law, Observations, kernels
from hierattn.inference import likelihood
from hierattn.inference.course.budget import Budget
from hierattn.inference.course.pace import Pace
from hierattn.inference.course.watching import NOBODY
from hierattn.inference.fitting import lookup
from hierattn.inference.methods import networkwise
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.protocol import Run
from hierattn.inference.methods.sweeps import sweep as sweeps
from hierattn.inference.problem import pose
from tests.inference import drawn

pytestmark = pytest.mark.usefixtures("float64")
LAYER, K = Architecture(heads=2), kernels.equicorrelated(3, 0.3)
NETWORKS, COORDINATES = 4, 8


def outputs(seed=0):
    with jax.enable_x64(True):
        return np.asarray(Law(LAYER, K).sample(jax.random.key(seed), NETWORKS, COORDINATES))


def draws(y, number=50, kernel=K, seed=0, chains=4, prior=None, **settings):
    """What `fit` does by this method, for a number of sweeps after a short warm-up."""
    problem = pose(Observations(y, kernel=kernel, heads=2), LAYER, lookup("limit_law"), prior)
    scales = sweeps.Prior(problem.prior["score_scale"], problem.prior["value_scale"], problem.observations.scale)
    method = Networkwise(warm_up=1, check_every=1, **settings)
    return method.sample_until(problem.data(), scales, Run(seed, chains), lambda found: found.log_q.shape[1] >= number)


def test_equal_shapes_are_compiled_once_whatever_the_numbers():
    draws(outputs(0))
    size = sweeps.chunk._cache_size()
    prior = {"score_scale": dist.LogNormal(0.1, 0.8)}
    fewer = outputs(1)[:, :, :5]
    assert draws(fewer, kernel=kernels.equicorrelated(3, 0.1), seed=7, prior=prior).log_q.shape == (4, 50)
    assert sweeps.chunk._cache_size() == size


def test_draws_do_not_depend_on_the_number_of_threads(monkeypatch):
    found = {}
    for cores in (1, 2, 8):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        found[cores] = draws(outputs())
    for cores in (2, 8):
        jax.tree.map(np.testing.assert_array_equal, found[1], found[cores])
    assert len(np.unique(found[1].log_q[:, -1])) == 4  # chains are not copies of each other


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_outputs_of_any_scale_have_the_same_posterior_but_for_it(scale):
    """Powers of two, near 1e-6 and 1e6: rounding differs in the prior alone, and the very draws agree until it has grown."""
    y = outputs()
    expected, found = draws(y), draws(scale * y)
    np.testing.assert_allclose(found.log_q[:, :10], expected.log_q[:, :10], atol=1e-5)
    np.testing.assert_allclose(found.log_o[:, :10], expected.log_o[:, :10], atol=1e-5)  # in units of the outputs' scale
    np.testing.assert_allclose(Observations(scale * y).scale, scale * Observations(y).scale)


def test_chains_start_where_the_prior_admits_it():
    """Also if that is neither near score_scale 1 nor where the data put value_scale; others stay where they were."""
    data, keys = likelihood.prepare(np.ones((4, 3, 3)) + np.eye(3), 8, LAYER, K), jax.random.split(jax.random.key(0), 4)
    usual = sweeps.Prior(dist.LogNormal(0.0, 1.0), dist.LogNormal(0.0, 1.0), 2.0)
    narrow = sweeps.Prior(dist.Uniform(5.0, 6.0), dist.Uniform(0.02, 0.03), 2.0)
    before, after = (networkwise.starts(data, prior, 0, keys) for prior in (usual, narrow))
    assert np.all(np.isfinite(before.log_o))
    assert not np.any(narrow.score_scale.support(np.exp(before.log_q)))
    assert np.all(narrow.score_scale.support(np.exp(after.log_q)))
    assert np.all(narrow.value_scale.support(np.exp(after.log_o) * narrow.unit))
    assert len(np.unique(after.log_q)) == len(np.unique(after.log_o)) == 4
    np.testing.assert_array_equal(before.E, after.E)


def test_conditional_covariances_are_kept_as_far_as_there_is_room():
    found = draws(outputs())
    assert found.Sigma.shape == (4, sweeps.RECORDS, 3, 3, NETWORKS)
    assert np.linalg.eigvalsh(np.moveaxis(found.Sigma, -1, 2)).min() > 0
    thinned = draws(outputs(), 200, sigma_room=found.Sigma.size // 3)  # a chunk in three
    assert thinned.Sigma.shape[1] == 2 * sweeps.RECORDS


def test_kernels_whose_outputs_have_no_density_are_refused():
    """One a network, of equal tokens: that Sigma is singular is seen at the start, not by chains that never move."""
    equal = np.broadcast_to(kernels.rbf([0.0, 1.0, 1.0], 1.0), (NETWORKS, 3, 3))
    with pytest.raises(InputError, match="kernel: expected a kernel with which outputs have a density"):
        draws(outputs(), kernel=equal)


@pytest.mark.parametrize("q", [0.4, 4.0])
def test_chains_start_near_the_score_scale_that_explains_mean_outputs(q):
    """Within a factor 2, where 1 is off by 2.5 or 4."""
    layer = Architecture(heads=1, sigma_q=q)
    y = drawn.outputs(layer, np.eye(4), 100, 32)
    data = likelihood.prepare(y @ y.swapaxes(1, 2), 32, layer, np.eye(4))
    place = networkwise.likeliest(data, jax.random.key(0), networkwise.LOOKED_AT)
    assert abs(place - np.log(q)) < np.log(2)


def test_sharp_attention_does_not_end_a_fit_where_it_starts():
    """Of 200 networks drawn from the prior one at least is singular to rounding; with smaller scores none is."""
    layer, key = Architecture(heads=1), jax.random.key(0)
    data = likelihood.prepare(np.ones((200, 4, 4)) + np.eye(4), 8, layer, np.eye(4))
    drawn_E = networkwise.normals(key, data.latent_shape)
    assert np.isnan(likelihood.terms(data, drawn_E, 8.0).trace).any()
    state = networkwise.start(data, key, np.log(8.0))
    assert np.isfinite(state.log_o)
    assert np.isfinite(likelihood.terms(data, state.E, 8.0).trace).all()


def test_fewer_draws_usually_suffice_where_trajectories_are_of_everything():
    """What the budget is judged by; never more than are allowed."""
    observations, narrow = Observations(outputs(), kernel=K, heads=2), LAYER.replace(head_dim=8)
    wide, finite = (
        pose(observations, LAYER, lookup("limit_law"), None),
        pose(observations, narrow, lookup("finite_head_dim"), None),
    )
    method = Networkwise()
    assert method.usual_for(wide) == method.usual_steps == 400 + 1000
    assert (method.warm_up_for(wide), method.warm_up_for(finite)) == (400, 250)
    assert method.usual_for(finite) == 250 + 300
    assert Networkwise(most_draws=100).usual_for(finite) == 250 + 100
    assert Networkwise(warm_up=1).warm_up_for(finite) == 50
    pace = Pace(NOBODY, method, Budget())
    pace.starts(finite)
    assert (pace.usual, pace.warm_up) == (550, 250)
