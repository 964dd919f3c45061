"""Cases on the edge (RELIABILITY): each has its exact answer, and none a NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from hierattn.numerics import rqmc

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """Fewer points: larger errors, stated as such."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)


def sigma_of(law):
    Sigma = np.asarray(law.sample_Sigma(KEY, 200))
    assert np.all(np.isfinite(Sigma))
    assert np.all(np.isfinite(law.sample(KEY, 200, 2)))
    return Sigma


@pytest.mark.parametrize("head_dim", [None, 2, 16])
def test_equal_tokens(head_dim):
    """All tokens equal: attention averages equal values, so every token has the same output, whatever the scores."""
    law = Law(Architecture(heads=2, head_dim=head_dim, sigma_q=3.0), 1.7 * np.ones((4, 4)))
    Sigma = sigma_of(law)
    np.testing.assert_allclose(Sigma, Sigma[:, :1, :1] * np.ones((4, 4)), rtol=1e-4)
    if head_dim is None:
        np.testing.assert_allclose(Sigma, 1.7, rtol=1e-5)
        assert law.moments() == pytest.approx((1.7, 0.0, 0.0, 0.0, law.moments().method))
    y = law.sample(KEY, 200, 2)
    np.testing.assert_allclose(y, y[:, :1] * np.ones((1, 4, 1)), atol=1e-5)


def test_two_equal_tokens():
    law = Law(Architecture(heads=2), kernels.rbf([0.0, 1.0, 1.0], 1.0))
    y = law.sample(KEY, 200, 2)
    np.testing.assert_allclose(y[:, 1], y[:, 2], atol=2e-6)
    assert np.abs(y[:, 0] - y[:, 1]).max() > 0.1
    a, b = law.moments(1), law.moments(2)
    assert abs(a.variance - b.variance) < a.variance_error + b.variance_error


def test_rank_one_kernel():
    x = np.array([1.0, -0.5, 2.0])
    law = Law(Architecture(heads=1), np.outer(x, x))
    assert np.linalg.matrix_rank(sigma_of(law)[0], tol=1e-5) == 1
    assert np.isfinite(law.moments(2).excess_kurtosis)


def test_zero_kernel():
    law = Law(Architecture(heads=2, head_dim=4), np.zeros((3, 3)))
    np.testing.assert_array_equal(law.sample(KEY, 10, 3), 0.0)
    assert law.moments().variance == 0.0


def test_a_zero_token_attends_to_all_alike():
    K = np.diag([0.0, 1.0, 2.0])
    law = Law(Architecture(sigma_q=5.0), K)
    np.testing.assert_allclose(sigma_of(law)[:, 0, 0], 3 / 9, rtol=1e-5)
    assert law.moments(0).excess_kurtosis == 0.0
    assert law.moments(0).variance == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_token_of_large_norm_leaves_the_others_alone(dtype):
    """An attention sink: norms 300 times the others', far beyond single precision between eigenvalues."""
    X = np.random.default_rng(0).normal(size=(16, 512)).astype(dtype)
    X[0] *= 300
    K = kernels.from_inputs(X)
    law = Law(Architecture(), K)
    np.testing.assert_allclose(np.asarray(law.K).diagonal(), K.diagonal(), rtol=1e-5)
    small = Law(Architecture(mask="causal"), np.diag([1e-6, 1.0, 1.0]).astype(dtype))
    assert small.moments(0).variance == pytest.approx(1e-6)


def test_zero_score_scale_is_uniform_attention():
    K = kernels.rbf(4, 1.0)
    law = Law(Architecture(heads=3, sigma_q=0.0), K)
    np.testing.assert_allclose(sigma_of(law), K.mean(), rtol=1e-5)
    assert law.moments().excess_kurtosis == 0.0


def test_huge_score_scale_is_argmax():
    law = Law(Architecture(heads=1, sigma_q=1e6), np.eye(4))
    A = law.layer.attention(law.sample_scores(KEY, 200))
    assert np.mean(np.asarray(A.max(axis=-1)) > 0.999) > 0.99
    assert np.all(np.isfinite(sigma_of(law)))
    found = law.moments()
    assert found.variance == pytest.approx(1 - 1.0294e-6, abs=1e-9)


@pytest.mark.parametrize("coordinates", [2, 20])
@pytest.mark.parametrize("q", [0.0, 100.0, 1e6])
def test_gradients_are_finite_at_the_extremes(q, coordinates):
    def loss(q):
        law = Law(Architecture(heads=2).with_scales(q, 1.0), kernels.rbf(3, 1.0))
        return jnp.mean(law.sample(KEY, 50, coordinates) ** 2)

    assert np.isfinite(jax.grad(loss)(q))


def test_one_head_and_many(monkeypatch):
    monkeypatch.setattr(rqmc, "BUDGET", 2**24)
    many = Law(Architecture(heads=4096), kernels.rbf(8, 2.0))
    assert many.sample(KEY, 3, 2).shape == (3, 8, 2)
    covariance, error = many.infinite_heads()
    np.testing.assert_allclose(many.sample_Sigma(KEY, 3), np.broadcast_to(covariance, (3, 8, 8)), atol=0.03)
    assert error.max() < 1e-3
