"""Data are let in step by step, and scores that explain a network badly give way to those of other chains."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import Architecture
from hierattn.inference import calibration
from hierattn.inference.likelihood import Terms, covariance, log_likelihood, prepare, terms
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.sweeps import sweep as sweeps
from hierattn.inference.methods.sweeps import tempering
from tests.inference.drawn import outputs
from tests.inference.mutants import mutant

pytestmark = pytest.mark.usefixtures("float64")
CHAINS, M, S, N = 4, 5, 3, 8
LAYER = Architecture(heads=2)


@pytest.fixture(scope="module")
def data():
    y = outputs(LAYER, np.eye(S), M, N)
    return prepare(y @ y.swapaxes(1, 2), N, LAYER, np.eye(S))


def scores(data):
    """Latent E of all chains, and Sigma for value_scale 0.7."""
    E = np.random.default_rng(0).normal(size=(CHAINS, *data.latent_shape))
    return E, 0.7**2 * np.stack([covariance(data, each, 1.3) for each in E])


@pytest.mark.parametrize("warm_up", [1, 3, 8, 20])
def test_each_step_doubles_the_data_and_all_count_before_the_warm_up_ends(data, warm_up):
    shares = np.array([tempering.Tempering(warm_up).share(k) for k in range(warm_up + 2)])
    steps = min(tempering.STEPS, warm_up - 1)
    np.testing.assert_allclose(shares[1 : steps + 1] / shares[:steps], 2)
    np.testing.assert_array_equal(shares[steps:], 1)
    few = tempering.Tempering(8).data(data, tempering.STEPS - 1)
    np.testing.assert_allclose(few.S, data.S / 2)
    assert few.n == N / 2


def test_log_likelihoods_are_those_of_the_networks_up_to_a_constant(data):
    E, Sigma = scores(data)
    expected = np.stack([log_likelihood(data, Terms(*terms(data, each, 1.3)), 0.7) for each in E])
    np.testing.assert_allclose(tempering.log_likelihoods(data, Sigma), expected + N * S / 2 * np.log(2 * np.pi), rtol=1e-9)
    Sigma[1, ..., 2] = 0
    assert np.isneginf(tempering.log_likelihoods(data, Sigma)[1, 2])


def in_proportion(module):
    """Are equal weights all kept, scores of no weight all given up, and others taken as often as their weights say?"""
    rng, some = np.random.default_rng(0), np.log([0.5, 0.25, 0.25, 1e-300])
    w = np.repeat(some[:, None], 20_000, axis=1)
    which = module.ancestors(w, rng)
    kept = np.exp(some) / 0.5
    expected = kept[:, None] * np.eye(CHAINS) + (1 - kept)[:, None] * np.exp(some)
    found = np.stack([np.mean(which == a, axis=1) for a in range(CHAINS)], axis=1)
    equal = np.array_equal(
        module.ancestors(np.full((CHAINS, 2), -np.inf), rng), np.repeat(np.arange(CHAINS)[:, None], 2, axis=1)
    )
    return equal and bool(np.all(np.abs(found - expected) < 0.02))  # standard error at most 0.0036


def test_scores_are_taken_in_proportion_to_how_well_they_explain():
    assert in_proportion(tempering)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("* w.sum(axis=0), axis=0)", "* len(w), axis=0)"), ("< w / w.max(axis=0)", "< w / w.sum(axis=0)")],
)
def test_wrong_proportions_are_seen(right, wrong):
    assert not in_proportion(mutant(tempering, right, wrong))


def test_a_network_caught_in_one_chain_goes_on_from_another_with_the_steps_of_that_one(data):
    E, Sigma = scores(data)
    Sigma = np.repeat(Sigma[:1], CHAINS, axis=0)
    Sigma[2, ..., 3] = np.eye(S) * 1e-6  # explains network 3 badly in chain 2
    steps, square = np.arange(CHAINS * M).reshape(CHAINS, M) / 10, np.random.default_rng(1).random((CHAINS, S, M))
    nothing = np.zeros(CHAINS)
    state = sweeps.State(E, nothing, nothing, steps, np.zeros((CHAINS, 3)), square, nothing)
    schedule = tempering.Tempering(8)
    after = schedule.exchanged(data, state, Sigma, 0, seed=0)
    expected = E.copy()
    other = int(np.round((after.log_step[2, 3] * 10 - 3) / M))
    assert other != 2
    expected[2, ..., 3] = E[other, ..., 3]
    np.testing.assert_array_equal(after.E, expected)
    np.testing.assert_array_equal(after.square[2, :, 3], square[other, :, 3])
    assert schedule.exchanged(data, state, Sigma, tempering.STEPS, seed=0) is state
    assert jnp.array_equal(schedule.exchanged(data, state, Sigma, 0, seed=0).E, after.E)


@pytest.mark.slow
def test_no_chain_is_lost_while_data_are_let_in(monkeypatch):
    """Data set 97 of a calibration: with rounding in moves of parts of rows score_scale went to e^6 in three of four.

    What rounding does to one move, and a mutant, are in `test_rows`.
    """
    prior = dict.fromkeys(calibration.PARAMETERS, dist.LogNormal(0.0, 0.5))

    def chains():
        design = calibration.Design(Architecture(heads=2), np.eye(4), 50, 16, None, prior, method=Networkwise(most_draws=100))
        ended = []
        monkeypatch.setattr(calibration, "independent", lambda x, rng: ended.append(x) or x[0, -99:])
        with jax.enable_x64(False):  # as calibrations are run; other numbers are drawn otherwise
            calibration.replicate(design, 0, 97)
        return np.log(ended[0])

    assert np.all(np.abs(chains() - np.log(5.7)) < 1)
