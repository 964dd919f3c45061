"""The exact density of exchangeable keys against integrals over the scores themselves."""

import numpy as np
import pytest
from scipy import integrate, stats

from hierattn.numerics import softmax_integrals as independent

Y = np.array([0.0, 0.02, 0.3, 1.0, 2.5, 5.0])


@pytest.mark.parametrize("tau", [0.1, 1.0, 4.0])
def test_density_of_two_keys(tau):
    """QUADPACK over the difference of two scores: sum_j w_j^2 = (1 + tanh^2(d / 2)) / 2, d ~ N(0, 2 tau^2)."""

    def integrand(z, y):
        v = (1 + np.tanh(tau * z / np.sqrt(2)) ** 2) / 2
        return stats.norm.pdf(y, scale=np.sqrt(v)) * stats.norm.pdf(z)

    exact = [2 * integrate.quad(integrand, 0, 12, (y,), epsabs=1e-13, epsrel=1e-12, limit=500)[0] for y in Y]
    np.testing.assert_allclose(independent.density(Y, 2, tau), exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.0])
def test_density_of_three_keys(tau):
    """A trapezoid rule over the plane of score differences."""
    z = np.arange(-9, 9, 0.04 if tau > 1 else 0.1) + 0.013
    z_1, z_2 = np.meshgrid(z, z)
    p = tau * np.stack([z_1 / 2**0.5 + z_2 / 6**0.5, -z_1 / 2**0.5 + z_2 / 6**0.5, -2 * z_2 / 6**0.5])
    w = np.exp(p - p.max(axis=0))
    v = np.sum((w / w.sum(axis=0)) ** 2, axis=0)
    weight = np.exp(-(z_1**2 + z_2**2) / 2)
    exact = [np.sum(weight * np.exp(-(y**2) / (2 * v)) / np.sqrt(2 * np.pi * v)) / weight.sum() for y in Y]
    np.testing.assert_allclose(independent.density(Y, 3, tau), exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("m", "tau"), [(2, 0.05), (2, 1.0), (4, 1.0), (4, 6.0), (16, 0.5), (16, 2.0), (64, 1.0)])
def test_moments_of_the_density(m, tau):
    """Mass 1, E[y^2] = E[u], E[y^4] = 3 E[u^2]: the integrals of `moments` share no formula with the density."""
    exact = independent.moments(np.ones(m), np.zeros(m), np.full(m, tau))
    y = np.arange(0.5, 18 * np.sqrt(m)) * 0.5 / np.sqrt(m)
    f = 2 * (y[1] - y[0]) * independent.density(y, m, tau)
    assert f.sum() == pytest.approx(1, abs=1e-10)
    assert f @ y**2 == pytest.approx(exact.mean, rel=1e-9)
    assert f @ y**4 == pytest.approx(3 * (exact.variance + exact.mean**2), rel=1e-8)
