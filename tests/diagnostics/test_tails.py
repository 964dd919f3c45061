"""Tails, kurtosis, predictions and power, each reached another way."""

import numpy as np
import pytest
from scipy import stats

from hierattn import Architecture, Law, Observations, diagnose, kernels
from hierattn.diagnostics import power, predictive
from hierattn.diagnostics.comparison import tails
from hierattn.diagnostics.comparison.token import square_correlation
from tests.diagnostics import drawn
from tests.statistics import SIGMAS

LAW = Law(drawn.LAYER, np.eye(4))


@pytest.fixture(scope="module")
def y():
    return drawn.law(0, 4000, 16)


@pytest.fixture(scope="module")
def laws():
    return tails.marginals(LAW, 0)


def test_networks_of_the_law_exceed_its_quantiles_as_often_as_it_says(y, laws):
    """4,000 networks see a share that is wrong by 8 % at 99 %; a Gaussian's is a third too small."""
    found = tails.exceedance(y, laws, 0.01, 0)
    error = (found["high"] - found["low"]) / (2 * stats.norm.isf(0.05))
    assert abs(found["observed"] - 1) < SIGMAS * error
    assert error < 0.03
    limit = float(laws[0].isf(0.005)) / np.sqrt(drawn.VARIANCE)
    assert found["gaussian"] == pytest.approx(2 * stats.norm.sf(limit) / 0.01, rel=1e-6)
    assert found["gaussian"] < 0.75
    assert found["bound"] == pytest.approx(2 * stats.norm.sf(float(laws[0].isf(0.005))) / 0.01, rel=1e-6)  # v_max = 1
    assert not abs(tails.exceedance(drawn.gaussian(0, 4000, 16), laws, 0.01, 0)["observed"] - 1) < SIGMAS * error


@pytest.mark.slow
def test_quantiles_of_all_outputs_are_the_laws_and_within_a_network_the_gaussians(y, laws):
    found = tails.tails(y, laws, 0)
    assert np.mean((found.law >= found.low) & (found.law <= found.high)) > 0.7
    middle = slice(0, 25)
    np.testing.assert_allclose(found.observed[middle], found.law[middle], rtol=0.03)
    student = np.sqrt(16 * stats.beta.ppf(tails.PROBABILITIES, 0.5, 7.5))  # z_1^2 / sum z^2 of 16 Gaussians
    np.testing.assert_allclose(found.given_network[middle], student[middle], rtol=0.03)


def test_kurtosis_has_an_interval_over_networks(y):
    found = tails.kurtosis(y, 0)
    assert np.all(np.abs(found["observed"] - drawn.KURTOSIS) < SIGMAS * found["sd"])
    assert np.all((found["low"] < found["observed"]) & (found["observed"] < found["high"]))
    assert np.all(found["sd"] < 0.05)


def test_a_kernel_each_is_the_mixture_of_their_laws():
    """Two kernels in turn: the variance is the mean of both, found exactly."""
    K = np.stack([np.eye(3), kernels.equicorrelated(3, 0.6)])
    each = [Law(Architecture(), k) for k in K]
    both = tails.marginals(Law.from_factors(Architecture(), np.stack([kernels.factor(k) for k in K])), 0)
    truth = np.mean([float(law.moments().variance) for law in each])
    assert float(both[0].variance) == pytest.approx(truth, rel=0.02)
    assert float(both[0].variance) != pytest.approx(float(each[0].moments().variance), rel=0.02)


def test_statistics_of_predictions_are_what_they_are_called():
    y = np.random.default_rng(0).normal(size=(400, 2, 5)) * np.array([1.0, 3.0])[:, None]
    each = [np.mean(y[:, i] ** 4) / np.mean(y[:, i] ** 2) ** 2 - 3 for i in (0, 1)]
    assert predictive.excess_kurtosis(y) == pytest.approx(np.mean(each))
    flat = y[:, 0] ** 2
    pairs = [np.corrcoef(flat[:, a], flat[:, b])[0, 1] for a in range(5) for b in range(a)]
    one = square_correlation(y[:, :1])
    assert one == pytest.approx(np.mean(pairs), abs=0.02)
    assert predictive.token_correlation(y) == pytest.approx(
        np.sum(y[:, 0] * y[:, 1]) / np.sqrt(np.sum(y[:, 0] ** 2) * np.sum(y[:, 1] ** 2))
    )
    assert predictive.largest(y) == np.abs(y).max() / np.sqrt(np.mean(y**2))


def test_predictions_notice_what_is_not_shared():
    given = {"score_scale": drawn.SCORE_SCALE, "value_scale": 1.0}
    name = "correlation of squares of two coordinates"
    good, bad = (
        diagnose(Observations(draw(3, 60, 16), np.eye(4), heads=1), **given).predictive
        for draw in (drawn.law, drawn.own_scores)
    )
    assert min(check.p_value for check in good.values()) > 0.01
    assert bad[name].p_value < 0.02


def test_more_networks_have_more_power():
    found = diagnose(Observations(drawn.law(4, 30, 16), np.eye(4), heads=1), score_scale=1.6, value_scale=1.0)
    curve = found.power_curve
    assert curve[32]["gaussian"] > curve[2]["gaussian"]
    assert curve[320]["score_scale"] > curve[32]["score_scale"] > curve[5]["score_scale"]
    assert power.needed(curve, "gaussian") <= 32
    assert power.needed({5: {"gaussian": 0.2}}, "gaussian") is None
