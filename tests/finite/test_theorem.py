"""The theorem in finite networks: averages over coordinates approach those of the limit, scores and values decouple."""

import jax
import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from hierattn import Architecture, Law, kernels
from hierattn.finite import theorem
from hierattn.finite.collapsed import FiniteWidth
from hierattn.finite.inputs import RandomInputs
from tests.statistics import mean_agrees, same_distribution, within

LAYER = Architecture(heads=2)


@pytest.mark.parametrize("t", [0.7, 2.0])
def test_expectations_given_sigma_against_drawn_coordinates(t):
    """Closed forms for one Sigma against 400,000 Gaussians, and against those of a Sigma 3 % larger."""
    Sigma = np.array([[0.8, -0.3], [-0.3, 0.5]])
    y = np.random.default_rng(0).multivariate_normal(np.zeros(2), Sigma, size=400_000)[..., None]
    for psi in theorem.psis(t).values():
        draws = np.asarray(psi.average(y), float)
        assert mean_agrees(draws, psi.given(Sigma[None])[0])
        assert not mean_agrees(draws, psi.given(1.03 * Sigma[None])[0])


def test_limits_are_expectations_given_the_scores():
    law = Law(LAYER, kernels.rbf(3, 1.0))
    Sigma = np.asarray(law.sample_Sigma(jax.random.key(3), 50), float)
    found = theorem.limit_averages(law, 50, seed=3, t=0.5)
    assert set(found) == set(theorem.psis())
    np.testing.assert_array_equal(found["y^2"], Sigma[:, 0, 0])
    np.testing.assert_array_equal(found["y^i y^j"], Sigma[:, 0, 1])
    np.testing.assert_allclose(found["cos(ty)"], np.exp(-Sigma[:, 0, 0] / 8))


@pytest.mark.parametrize("sizes", [(500, 500), (20, 333), (1, 1)])
def test_wassersteins_distance_is_scipys(sizes):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=sizes[0]), rng.integers(0, 3, size=sizes[1]).astype(float)  # with ties
    assert theorem.wasserstein(x, y) == pytest.approx(wasserstein_distance(x, y), rel=1e-12)


def test_averages_are_over_all_coordinates_of_a_network():
    law = FiniteWidth(LAYER, RandomInputs(16))
    y = np.asarray(law.sample(jax.random.key(5), 3000, 16), float)
    found = theorem.finite_averages(law, 3000, seed=5, t=0.5)
    assert set(found) == set(theorem.psis())
    expected = {
        "y^2": (y[:, 0] ** 2).mean(axis=-1),
        "|y|": np.abs(y[:, 0]).mean(axis=-1),
        "1(|y|>t)": (np.abs(y[:, 0]) > 0.5).mean(axis=-1),
        "cos(ty)": np.cos(0.5 * y[:, 0]).mean(axis=-1),
        "y^i y^j": (y[:, 0] * y[:, 1]).mean(axis=-1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


def test_averages_have_the_variances_of_their_networks():
    """y^2 averaged over n coordinates is v chi2_n / n, with v from the shortcut for one token; v alone is another law."""
    n, law = 16, FiniteWidth(LAYER, RandomInputs(16))
    found = theorem.finite_averages(law, 20_000)["y^2"]
    v = np.asarray(law.sample_variances(jax.random.key(7), 20_000), float)
    assert same_distribution(found, v * np.random.default_rng(0).chisquare(n, 20_000) / n)
    assert not same_distribution(found, v)


def test_averages_approach_those_of_the_limit_and_of_no_other():
    """Distances fall from n = 16 to 128 for every psi; the limit of another layer, sigma_v 1.3 times as large, stays away."""
    widths = (16, 48, 128)
    limits = [theorem.limit_averages(Law(LAYER, np.eye(4)), 3000, seed) for seed in (1, 2, 3)]
    averages = {n: theorem.finite_averages(FiniteWidth(LAYER, RandomInputs(n)), 3000) for n in widths}
    found = {n: theorem.distances(averages[n], limits) for n in widths}
    for name in theorem.psis():
        distance = [found[n][name][0] for n in widths]
        floor = [found[n][name][1] for n in widths]
        assert distance[0] > 1.5 * distance[1] > 2.25 * distance[2] > 2.25 * floor[2]
    wrong = theorem.limit_averages(Law(LAYER.replace(sigma_v=1.3), np.eye(4)), 3000, seed=9)["y^2"]
    right = theorem.limit_averages(Law(LAYER, np.eye(4)), 3000, seed=9)["y^2"]
    finite = theorem.finite_averages(FiniteWidth(LAYER, RandomInputs(128)), 3000)["y^2"]
    assert wasserstein_distance(finite, wrong) > 3 * wasserstein_distance(finite, right)


def correlation(n):
    """Of p_11^2 and the squared value variable, exactly: both know G_11 = r chi2_n / n, whose moments are products."""
    second, third = (1 + 2 / n) ** 2, ((1 + 2 / n) * (1 + 4 / n)) ** 2
    fourth = ((1 + 2 / n) * (1 + 4 / n) * (1 + 6 / n)) ** 2
    variances = (3 * (1 + 2 / n) * fourth - second**2) * (3 * (1 + 2 / n) * second - 1)
    return (third - second) / np.sqrt(variances)


def test_scores_and_values_decouple_as_one_over_the_width():
    """The exact correlation, 4/n to first order; at 200,000 networks it is seen at n = 16 and told from that of n = 64."""
    found = {n: theorem.dependence(LAYER, n, networks=200_000) for n in (16, 64)}
    for n, (estimate, error) in found.items():
        assert within(estimate, correlation(n), error)
        assert not within(estimate, 0.0, error)
        assert not within(estimate, correlation(2 * n), error)
    assert 0.9 < 1e4 * correlation(1e4) / 4 < 1.1


def test_correlations_have_no_scale():
    plain, scaled = (theorem.dependence(LAYER.replace(sigma_v=x, sigma_q=x), 16, networks=2**14) for x in (1.0, 3.0))
    np.testing.assert_allclose(scaled, plain, rtol=1e-3)
