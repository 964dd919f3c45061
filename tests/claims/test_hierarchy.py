"""THEORY sections 2 and 4: one set of scores for a whole network, and what follows."""

import jax
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from tests.statistics import mean_agrees, same_joint_law, within

K = kernels.from_inputs(np.random.default_rng(0).normal(size=(3, 4)))
LAW = Law(Architecture(heads=1, sigma_q=1.6), K)


def dense_sample(rng, q, H, K, networks, coordinates, own_scores=False):
    """The law by its definition: a Gaussian of dimension s^2 for the scores, NumPy, nothing shared with the package."""
    s = len(K)
    shape = (networks, coordinates, H) if own_scores else (networks, 1, H)
    p = q * rng.multivariate_normal(np.zeros(s * s), np.kron(K, K), shape).reshape(*shape, s, s)
    A = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    v = rng.multivariate_normal(np.zeros(s), K, (networks, coordinates, H))
    return np.einsum("mchij,mchj->mic", np.broadcast_to(A, (networks, coordinates, H, s, s)), v) / np.sqrt(H)


@pytest.mark.parametrize("heads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_kronecker_sampler_against_the_dense_gaussian(heads):
    """25,000 networks a head and side, two coordinates, three tokens jointly; more of them in analysis/claims/joint_law.py."""
    rng, number = np.random.default_rng(heads), 25_000 * heads
    y = Law(Architecture(heads=heads, sigma_q=1.6), K).sample(jax.random.key(heads), number, 2)
    assert same_joint_law(y, dense_sample(rng, 1.6, heads, K, number, 2), rng)
    assert not same_joint_law(y, dense_sample(rng, 1.6 * 1.1, heads, K, number, 2), rng)
    assert not same_joint_law(y, dense_sample(rng, 1.6, heads, K, number, 2, own_scores=True), rng)
    assert not same_joint_law(y, np.sqrt(1.1) * dense_sample(rng, 1.6, heads, K, number, 2), rng)


def test_scores_have_the_dense_covariance():
    p = np.asarray(Law(Architecture(heads=2, sigma_q=0.5), K).sample_scores(jax.random.key(0), 40_000), float)
    flat = p.reshape(len(p), -1)
    products = flat[:, :, None] * flat[:, None, :]
    assert mean_agrees(products, 0.25 * np.kron(np.eye(2), np.kron(K, K)))


def squares(y):
    """y_alpha^2 y_beta^2 of two coordinates of one network, and of two networks, for every token."""
    y = np.asarray(y, float)
    return y[:, :, 0] ** 2 * y[:, :, 1] ** 2, y[:-1, :, 0] ** 2 * y[1:, :, 0] ** 2


def test_squares_of_coordinates_covary_within_a_network_only():
    """Cov(y_alpha^2, y_beta^2) = Var(v) within, 0 between networks; coordinates with scores of their own have 0 within."""
    y = LAW.sample(jax.random.key(3), 200_000, 2)
    within_network, between = squares(y)
    moments = [LAW.moments(i) for i in range(3)]
    mean = np.array([m.variance for m in moments])
    variance_of_v = np.array([m.excess_kurtosis for m in moments]) * mean**2 / 3
    assert mean_agrees(within_network, mean**2 + variance_of_v)
    assert not mean_agrees(within_network, mean**2 + 0.5 * variance_of_v)
    assert mean_agrees(between[::2], mean**2)
    assert not mean_agrees(within_network, mean**2)
    own = dense_sample(np.random.default_rng(0), 1.6, 1, K, 50_000, 2, own_scores=True)
    assert mean_agrees(squares(own)[0], mean**2)


def test_correlation_of_squares():
    """Corr(y_alpha^2, y_beta^2) = (k / 3) / (2 + k) with k the excess kurtosis."""
    y = np.asarray(LAW.sample(jax.random.key(4), 400_000, 2)[:, 0], float)
    k = LAW.moments(0).excess_kurtosis
    blocks = (y**2).reshape(100, -1, 2)
    correlations = np.array([np.corrcoef(block.T)[0, 1] for block in blocks])
    assert within(correlations.mean(), k / 3 / (2 + k), correlations.std() / 10)


def test_sampled_moments_are_the_laws():
    """Variance and kurtosis of 400,000 networks, standard errors from networks."""
    y = np.asarray(LAW.sample(jax.random.key(5), 400_000)[:, 0, 0], float)
    m = LAW.moments(0)
    assert mean_agrees(y**2, m.variance)
    assert mean_agrees(y**4, (3 + m.excess_kurtosis) * m.variance**2)
    assert not mean_agrees(y**4, 3 * m.variance**2)
    assert mean_agrees(y**3, 0.0)


def test_kurtosis_is_inverse_in_heads_and_second_moments_do_not_change():
    one = Law(Architecture(heads=1), K).moments()
    for heads in (2, 16, 256):
        many = Law(Architecture(heads=heads), K).moments()
        assert many.variance == pytest.approx(one.variance, rel=1e-12)
        assert many.excess_kurtosis * heads == pytest.approx(one.excess_kurtosis, rel=1e-12)


def test_conditional_variance_is_bounded():
    """Attention rows are convex weights: v <= value_scale^2 max_j K_jj over the allowed keys."""
    law = Law(Architecture(sigma_q=5.0, sigma_v=2.0, mask="causal"), K)
    v = np.asarray(law.sample_Sigma(jax.random.key(6), 10_000))[:, [0, 1, 2], [0, 1, 2]]
    bound = 4 * np.maximum.accumulate(K.diagonal())
    assert np.all(v <= bound * (1 + 1e-5))
    assert np.all(v.max(axis=0) > 0.9 * bound)


def test_given_scores_coordinates_are_independent_gaussians():
    """One network's 200,000 coordinates: covariance Sigma(p), no excess kurtosis, no dependence of squares."""
    p = LAW.sample_scores(jax.random.key(7), 1)
    y = np.asarray(LAW.sample_given(jax.random.key(8), p, 200_000)[0], float)
    Sigma = np.asarray(LAW.Sigma(p[0]), float)
    assert mean_agrees(np.einsum("ic,jc->cij", y, y), Sigma)
    assert mean_agrees(y.T**4, 3 * Sigma.diagonal() ** 2)
    z = (y**2)[:, ::2] * (y**2)[:, 1::2]
    assert mean_agrees(z.T, Sigma.diagonal() ** 2)
