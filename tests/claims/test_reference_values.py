"""THEORY section 11: published numbers and closed forms, each reached through the package's public face."""

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from hierattn import Architecture, Law, activations, kernels
from hierattn.numerics import rqmc
from hierattn.numerics import softmax_integrals as independent
from tests.statistics import follows, within


@pytest.mark.parametrize(
    ("activation", "mean", "second", "kurtosis"),
    [("clip", 0.3919714436, 0.1661028910, 0.24331843), ("relu", 0.2547659468, 0.0649839852, 0.0036189854)],
)
@pytest.mark.parametrize("heads", [1, 2, 8])
def test_four_tokens(activation, mean, second, kurtosis, heads):
    found = Law(Architecture(heads=heads), kernels.activation(activation, 4)).moments()
    assert abs(found.variance - mean) < 1e-10
    assert abs(found.excess_kurtosis * heads - kurtosis) < 1e-8
    if heads == 1:
        assert abs(found.variance**2 * (1 + found.excess_kurtosis / 3) - second) < 1e-10


@pytest.mark.parametrize(("name", "value"), [("relu", 0.3058726389), ("erf", 0.2083149850), ("gelu", 0.2247096559)])
def test_duals(name, value):
    assert abs(activations.lookup(name).dual(1.7, 0.6, 0.5) - value) < 1e-10


def test_dual_of_clip():
    clip = activations.clip(0.8)
    assert abs(clip.dual(1.7, 1.7, 1.7) - 0.4386784447) < 1e-10
    assert abs(clip.dual(1.7, 0.6, 0.5) - 0.1650565160) < 1e-10


@pytest.mark.parametrize("q", [0.25, 1.0, 5.0])
def test_two_tokens(q):
    """u in terms of t = tanh(d / 2), d Gaussian, integrated by QUADPACK."""
    K = np.array([[1.3, 0.4], [0.4, 0.7]])
    sd = q * np.sqrt(K[0, 0] * (K[0, 0] + K[1, 1] - 2 * K[0, 1]))

    def u(d):
        t = np.tanh(d / 2)
        return K.sum() / 4 + t * (K[0, 0] - K[1, 1]) / 2 + t**2 * (K[0, 0] + K[1, 1] - 2 * K[0, 1]) / 4

    expect = lambda f: integrate.quad(lambda d: f(u(d)) * stats.norm.pdf(d, 0, sd), -9 * sd, 9 * sd, epsabs=1e-12)[0]  # noqa: E731
    mean, second = expect(lambda u: u), expect(lambda u: u**2)
    found = Law(Architecture(sigma_q=q), K).moments(0)
    assert abs(found.variance - mean) < 1e-9
    assert abs(found.excess_kurtosis - 3 * (second / mean**2 - 1)) < 1e-8


@pytest.mark.parametrize("s", [2, 4, 16])
def test_small_scores(s):
    q = 0.05
    found = Law(Architecture(sigma_q=q), np.eye(s)).moments()
    mean = 1 / s + (s - 1) * q**2 / s**2 + (s - 1) * (s - 6) * q**4 / (2 * s**3)
    assert abs(found.variance / mean - 1) < q**6
    assert abs(found.excess_kurtosis / (6 * (s - 1) / s**2 * q**4 * (1 + (3 * s - 16) * q**2 / s)) - 1) < 20 * q**4


@pytest.mark.parametrize(("s", "c"), [(2, 0.5642), (4, 1.0294), (16, 1.7660)])
def test_large_scores(s, c):
    for q in (100.0, 1e4):
        assert abs((1 - Law(Architecture(sigma_q=q), np.eye(s)).moments().variance) * q - c) < 2e-4 + 0.02 / q


def test_kurtosis_is_largest_at_a_moderate_scale():
    """K = I, s = 4: .3509 / H at score_scale 1.778, not monotone."""
    q = np.union1d(np.linspace(1.6, 2.0, 41), np.linspace(1.768, 1.788, 21))
    ones, zeros = np.ones(4), np.zeros(4)
    kurtosis = [3 * m.variance / m.mean**2 for m in (independent.moments(ones, zeros, x * ones) for x in q)]
    assert abs(q[np.argmax(kurtosis)] - 1.778) < 2e-3
    assert abs(max(kurtosis) - 0.3509) < 5e-5


def test_identity_scores_of_one_token_with_two_heads_are_laplace():
    """50,000 networks against the exact distribution, scale 1/sqrt(2); a 10 % wrong scale is seen."""
    y = Law(Architecture(heads=2, score_function="identity"), np.ones((1, 1))).sample(jax.random.key(0), 50_000)
    assert follows(y, stats.laplace(scale=1 / np.sqrt(2)).cdf)
    assert not follows(y, stats.laplace(scale=1.1 / np.sqrt(2)).cdf)


@pytest.mark.parametrize("heads", [1, 3])
def test_characteristic_function_of_identity_scores(heads):
    """E exp(i t y_i) = prod_k (1 + t^2 q^2 o^2 K_ii lambda_k^2 / H)^{-H/2}, from E exp(-t^2 Sigma_ii / 2) over drawn p."""
    K, q, o = kernels.rbf(4, 1.2), 0.8, 1.3
    law = Law(Architecture(heads=heads, score_function="identity", sigma_q=q, sigma_v=o), K)
    v = np.asarray(law.sample_Sigma(jax.random.key(1), 100_000)[:, 1, 1], float)
    eigenvalues = np.linalg.eigvalsh(K)
    for t in (0.2, 0.5, 1.0, 2.0):
        exact = np.prod((1 + t**2 * q**2 * o**2 * K[1, 1] * eigenvalues**2 / heads) ** (-heads / 2))
        x = np.exp(-(t**2) * v / 2)
        assert within(x.mean(), exact, x.std() / np.sqrt(len(x)))
    K4, K2 = (np.trace(np.linalg.matrix_power(K, n)) for n in (4, 2))
    assert abs(law.moments(1).excess_kurtosis - 6 / heads * K4 / K2**2) < 1e-12


def test_infinite_head_kernel_of_identity_scores(monkeypatch):
    """q^2 o^2 ||K||_F^2 K (Hron et al. 2020)."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**24)
    K = kernels.rbf(3, 1.0)
    law = Law(Architecture(heads=2, score_function="identity", sigma_q=0.7, sigma_o=1.5), K)
    covariance, error = law.infinite_heads()
    exact = 0.7**2 * 1.5**2 * np.sum(K**2) * K
    assert np.all(np.abs(covariance - exact) < error)
    assert not np.all(np.abs(covariance - 1.001 * exact) < error)


def test_one_token_is_gaussian():
    """s = 1, infinite head_dim: exactly N(0, value_scale^2 K)."""
    law = Law(Architecture(heads=3, sigma_v=1.5), np.array([[2.0]]))
    np.testing.assert_allclose(law.sample_Sigma(jax.random.key(0), 100), 4.5, rtol=1e-6)
    found = law.moments()
    assert (found.variance, found.variance_error, found.excess_kurtosis) == (pytest.approx(4.5, rel=1e-14), 0.0, 0.0)
    assert follows(law.sample(jax.random.key(1), 50_000), stats.norm(scale=np.sqrt(4.5)).cdf)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 1), (2, 3), (1, 64)])
def test_one_token_at_finite_head_dim_is_variance_gamma(heads, head_dim):
    """y = N(0, 1) sqrt(chi2_{H n_H} / (H n_H)) exactly; kurtosis 6 / (H n_H)."""
    law = Law(Architecture(heads=heads, head_dim=head_dim), np.ones((1, 1)))
    df = heads * head_dim
    v = law.sample_Sigma(jax.random.key(0), 50_000)[:, 0, 0]
    assert follows(v, stats.chi2(df, scale=1 / df).cdf)
    assert not follows(v, stats.chi2(df + max(1, df // 8), scale=1 / (df + max(1, df // 8))).cdf)
    assert law.moments().excess_kurtosis == pytest.approx(6 / df, rel=1e-12)


def test_first_causal_token_is_gaussian():
    law = Law(Architecture(heads=2, mask="causal", sigma_q=3.0), kernels.rbf(4, 1.0, variance=1.7))
    np.testing.assert_allclose(law.sample_Sigma(jax.random.key(0), 100)[:, 0, 0], 1.7, rtol=1e-6)
    assert law.moments(0).excess_kurtosis == 0.0
    assert law.moments(3).excess_kurtosis > 0.03


@pytest.mark.parametrize(
    ("q", "ratio"),
    [(1.0, 1.568), (4.0, 3.024), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.25, 1.046), (2.0, 2.298)))],
)
def test_several_tokens_identify_the_score_scale(monkeypatch, q, ratio):
    """E Sigma_ii / E Sigma_ij for K = I, s = 4 (THEORY section 9): rows are independent, so E Sigma_ij = 1 / s."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**24)
    covariance, error = Law(Architecture(sigma_q=q), np.eye(4)).infinite_heads()
    off = covariance[~np.eye(4, dtype=bool)]
    assert error.max() < 4e-4
    assert np.all(np.abs(off - 0.25) < error.max())
    assert abs(covariance[0, 0] / off.mean() - ratio) < 6e-4 + 2 * error.max()
