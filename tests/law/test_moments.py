"""One token's moments: every route against another, and the stated errors against the truth."""

import jax
import numpy as np
import pytest
from scipy import stats

from hierattn import Architecture, Law, kernels, rotary_frequencies
from hierattn.law import moments, row
from hierattn.numerics import rqmc
from hierattn.numerics import softmax_integrals as independent
from tests.variants import variants


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """A quarter of the points: larger errors, stated as such."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**24)


RNG = np.random.default_rng(0)
GENERAL = kernels.from_inputs(RNG.normal(size=(4, 6)))


def brute_force(law, token, networks=100_000, seed=5):
    """Mean and variance of Sigma_ii over drawn networks, with standard errors: knows nothing of the moments' formulas."""
    v = np.asarray(law.sample_Sigma(jax.random.key(seed), networks), float)[:, token, token]
    d = v - v.mean()
    return v.mean(), v.std() / np.sqrt(networks), v.var(), np.sqrt(((d**4).mean() - v.var() ** 2) / networks)


def softmax(bias):
    """Of scores of one head, with a bias."""
    return Architecture(bias=bias[None]).weighing(1, len(bias)).of_token(0, np.arange(len(bias)), 1).of_head(0)


LAWS = {
    "exchangeable": (Law(Architecture(heads=2), kernels.equicorrelated(5, 0.3)), 0),
    "general": (Law(Architecture(heads=2), GENERAL), 1),
    "wide scores": (Law(Architecture(sigma_q=4.0), GENERAL), 1),
    "causal": (Law(Architecture(mask="causal"), GENERAL), 2),
    "unequal heads": (Law(Architecture(heads=3, sigma_q=[0.5, 1.0, 2.0], sigma_v=[1.0, 2.0, 0.5]), GENERAL), 0),
    "bias per head": (Law(Architecture(heads=2, bias=RNG.normal(size=(2, 4, 4))), np.diag([1.0, 2.0, 0.5, 1.5])), 3),
    "rotary": (Law(Architecture(rotary=rotary_frequencies(6)), GENERAL), 2),
    "cross": (Law(Architecture(), GENERAL, kernels.equicorrelated(2, 0.5)), 1),
    "finite": (Law(Architecture(heads=2, head_dim=5), GENERAL), 1),
    "finite exchangeable": (Law(Architecture(heads=2, head_dim=3), kernels.equicorrelated(4, 0.2)), 1),
    "finite linear": (Law(Architecture(head_dim=4, scaling="linear", sigma_q=3.0), GENERAL), 1),
    "finite rotary": (Law(Architecture(heads=2, head_dim=6, rotary=rotary_frequencies(6)), GENERAL), 2),
    "grouped": (Law(Architecture(heads=4, head_dim=3, key_value_heads=2, sigma_o=[1.0, 2.0, 1.0, 2.0]), GENERAL), 1),
    "identity": (Law(Architecture(score_function="identity", bias=np.ones((4, 4)) / 3), GENERAL), 1),
    "finite identity": (Law(Architecture(score_function="identity", head_dim=5), GENERAL), 1),
    "singular": (Law(Architecture(), kernels.from_inputs(RNG.normal(size=(4, 2)))), 0),
}


@pytest.mark.parametrize("name", variants(LAWS, ["grouped", "cross"]))
def test_against_brute_force(monkeypatch, name):
    """100,000 networks: standard errors of about .1 % of the variance and 1 % of the kurtosis."""
    law, token = LAWS[name]
    found = law.moments(token)
    mean, mean_error, variance, variance_error = brute_force(law, token)
    assert abs(found.variance - mean) < 5 * mean_error + found.variance_error
    kurtosis, error = 3 * variance / mean**2, 3 * variance_error / mean**2
    assert abs(found.excess_kurtosis - kurtosis) < 5 * error + found.excess_kurtosis_error
    monkeypatch.setattr(rqmc, "BUDGET", 2**20)  # enough for a mutant
    mutant = Law(law.layer.replace(sigma_q=1.1 * law.layer.sigma_q), law.K, law.query_kernel).moments(token)
    assert abs(mutant.variance - mean) > 5 * mean_error or abs(mutant.excess_kurtosis - kurtosis) > 5 * error


@pytest.mark.parametrize("name", variants(["general", "causal", "finite", "unequal heads"], ["general"]))
def test_stated_errors_are_small_enough_and_cover_other_seeds(name):
    """Two seeds are two independent estimates: they must agree within their errors, and reach 1e-4 and 1e-2."""
    law, token = LAWS[name]
    one, other = law.moments(token, seed=1), law.moments(token, seed=2)
    assert one.method == "RQMC"
    assert one.variance != other.variance
    for x in (one, other):
        assert x.variance_error < 1e-4 * x.variance
        assert x.excess_kurtosis_error < 1e-2 * x.excess_kurtosis
    assert abs(one.variance - other.variance) < one.variance_error + other.variance_error
    assert abs(one.excess_kurtosis - other.excess_kurtosis) < one.excess_kurtosis_error + other.excess_kurtosis_error


@pytest.mark.parametrize("head_dim", [None, 4])
@pytest.mark.parametrize("m", [2, pytest.param(5, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow)])
def test_rqmc_against_quadrature(m, head_dim):
    """Independent keys of unequal variances and biases, where both apply; no control variate, which knows the quadrature."""
    rng = np.random.default_rng(m)
    d, bias, q = rng.uniform(0.5, 2, m), rng.normal(size=m), 1.3
    exact = independent.mixed(d, bias, q * np.sqrt(d), head_dim)
    found = moments._RowIntegral(np.diag(d) + 0.1, np.diag(q * np.sqrt(d)), head_dim, softmax(bias)).estimate(0)
    assert abs(found.mean - exact.mean - 0.1) < found.mean_error < 1e-3 * found.mean
    assert abs(found.variance - exact.variance) < found.variance_error < 1e-2 * found.variance


def test_control_variate_and_principal_axes_agree():
    K = kernels.from_inputs(np.random.default_rng(3).normal(size=(8, 1024)))
    integrals = []
    for control in (True, False):
        values, vectors = np.linalg.eigh(K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean())
        axes = vectors * np.sqrt(values.clip(0))
        (d, c, _), bias = row.diagonal_and_rest(K), np.zeros(8)
        known = moments.Control(d, c, np.sqrt(d), independent.moments(d, bias, np.sqrt(d)))
        root = axes @ vectors.T if control else axes[:, ::-1]
        integrals.append(moments._RowIntegral(K, root, None, softmax(bias), known if control else None).estimate(0, 2**22))
    with_control, without = integrals
    assert with_control.mean_error < 0.5 * without.mean_error
    assert abs(with_control.mean - without.mean) < with_control.mean_error + without.mean_error
    assert abs(with_control.variance - without.variance) < with_control.variance_error + without.variance_error


def test_stated_errors_cover_the_truth_as_often_as_they_say():
    """Coverage over 40 scrambles of a small budget, truth by quadrature: at most one miss."""
    K = np.diag([1.0, 2.0, 0.5, 1.5])
    d, bias = K.diagonal(), np.zeros(4)
    truth = independent.moments(d, bias, np.sqrt(d))
    axes = np.diag(np.sqrt(d))
    misses = 0
    for seed in range(40):
        found = moments._RowIntegral(K, axes, None, softmax(bias)).estimate(seed, 2**18)
        misses += abs(found.mean - truth.mean) > found.mean_error or abs(found.variance - truth.variance) > found.variance_error
    assert misses <= 1


def test_narrow_scores_join_on():
    """The series below tau = .03 and the integrals above it agree where they meet."""
    for m in (2, 4, 64):
        ones, zeros = np.ones(m), np.zeros(m)
        series = independent._narrow(m, 0.03, 1.0)
        integral = independent.moments(ones, zeros, 0.03 * ones)
        assert abs(series.mean - integral.mean) < series.mean_error + integral.mean_error
        assert abs(series.variance - integral.variance) < series.variance_error + integral.variance_error
        assert series.variance_error < 1e-4 * series.variance


def over_chi(n_H, edges):
    """Points and weights of an integral over chi of n_H degrees of freedom, six in each panel."""
    x, w = np.polynomial.legendre.leggauss(6)
    points = (edges[1:] + edges[:-1])[:, None] / 2 + np.diff(edges)[:, None] / 2 * x
    return points.ravel(), (np.diff(edges)[:, None] / 2 * w).ravel() * stats.chi(n_H).pdf(points.ravel())


def test_gauss_rule_of_the_chi_square():
    """E[f(r)] for r ~ chi2 / n_H against SciPy, through the mean of u for two keys."""
    ones, zeros = np.ones(2), np.zeros(2)
    for n_H in (1, 2, 64):
        root_r, weight = over_chi(n_H, np.linspace(0, np.sqrt(n_H) + 9.5, 21))
        truth = weight @ [independent.moments(ones, zeros, np.full(2, x / np.sqrt(n_H))).mean for x in root_r]
        assert abs(independent.mixed(ones, zeros, ones, n_H).mean - truth) < 1e-7


NARROWEST = [(s, q) for s in (4, 16) for q in (2.0, 3.0, 4.0, 30.0)]


@pytest.mark.parametrize("case", variants(NARROWEST, [(4, 30.0), (16, 3.0)]))
def test_stated_errors_cover_the_truth_for_the_narrowest_heads(case):
    """head_dim 1, where the mixture over r is hardest: truth by 50 panels in sqrt(r)."""
    s, q = case
    ones, zeros = np.ones(s), np.zeros(s)
    found = independent.mixed(ones, zeros, q * ones, 1)
    root_r, weight = over_chi(1, np.concatenate([[0], np.geomspace(1e-4, 9.5, 50)]))
    means = np.array([independent.moments(ones, zeros, q * r * ones).mean for r in root_r])
    assert abs(found.mean - weight @ means) < found.mean_error + 1e-9


@pytest.mark.parametrize(
    "law", [Law(Architecture(sigma_q=0.01), kernels.activation("relu", 16)), Law(Architecture(sigma_q=0.01), GENERAL)]
)
def test_small_scores_have_an_accurate_kurtosis(law):
    found = law.moments(1)
    assert 0 < found.excess_kurtosis_error < 1e-2 * found.excess_kurtosis


def test_two_tokens_are_always_exact():
    assert Law(Architecture(), [[1.0, 1.2], [1.2, 2.0]]).moments().method == "quadrature"


def test_methods_are_named():
    names = {"exchangeable": "quadrature", "bias per head": "quadrature", "general": "RQMC", "identity": "closed form"}
    assert {name: LAWS[name][0].moments(LAWS[name][1]).method for name in names} == names


def test_summary_is_flat_and_has_no_nan():
    record = moments.summary(LAWS["finite"][0], 1)
    assert record["infinite_heads_variance"] == LAWS["general"][0].moments(1).variance
    zero = moments.summary(Law(Architecture(), np.zeros((2, 2))))
    assert zero["variance"] == 0.0
    assert zero["excess_kurtosis"] is None
    assert zero["reasons"][0]["code"] == "zero_outputs"


def test_points_beyond_sobols_dimension_are_still_unbiased(monkeypatch):
    monkeypatch.setattr(rqmc, "FIRST", 5)
    means = rqmc.expectations(lambda u: np.array([u.mean()]), 22_000, 0, lambda means: True)
    assert abs(means.mean() - 0.5) < rqmc.error(means[:, 0]) + 1e-4
