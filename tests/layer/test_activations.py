import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from hierattn import InputError, activations

SETTINGS = [(1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, 1.0, 0.999999), (4.0, 0.01, 0.1), (1.7, 0.6, 0.5)]
SETTINGS += [(1e4, 1e-3, 0.9), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1e-6, 1e-6, -3e-7), (1.0, 1.0, 1 - 1e-12)]


PHI = {  # in NumPy, where every number of points costs the same
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "erf": special.erf,
    "gelu": lambda x: x * special.ndtr(x),
}


@pytest.mark.parametrize("name", PHI)
def test_functions_are_what_they_are_called(name):
    x = np.linspace(-6, 6, 101)
    with jax.enable_x64(True):
        np.testing.assert_allclose(activations.ACTIVATIONS[name].phi(jnp.asarray(x)), PHI[name](x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", PHI)
@pytest.mark.parametrize(("a", "b", "c"), SETTINGS)
def test_closed_forms_against_quadrature(name, a, b, c):
    activation = activations.ACTIVATIONS[name]
    scale = np.sqrt(activation.dual(a, a, a) * activation.dual(b, b, b)) + 1e-30
    assert abs(activation.dual(a, b, c) - activations.dual_by_quadrature(PHI[name], a, b, c)) < 1e-13 * scale


@pytest.mark.parametrize(
    "phi", [np.tanh, lambda x: np.clip(x, -0.8, 0.8), lambda x: np.abs(x - 0.3), lambda x: np.maximum(x + 1, 0)]
)
def test_quadrature_against_adaptive_integration(phi):
    """QUADPACK on both integrals, told where the kinks are."""
    a, b, c, kinks = 1.7, 0.6, 0.5, [-1, -0.8, 0.3, 0.8]
    sd = np.sqrt(b - c**2 / a)

    def integral(f, mean, sd):
        return integrate.quad(f, mean - 9 * sd, mean + 9 * sd, points=kinks, epsabs=1e-10, epsrel=1e-8, limit=200)[0]

    def density(x, mean, sd):
        return math.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * math.sqrt(2 * math.pi))

    def inner(x):
        return integral(lambda y: phi(y) * density(y, c / a * x, sd), c / a * x, sd)

    truth = integral(lambda x: phi(x) * density(x, 0, math.sqrt(a)) * inner(x), 0, math.sqrt(a))
    assert abs(activations.lookup(phi).dual(a, b, c) - truth) < 1e-8


def test_jumps_are_found():
    """E[sign(x) sign(y)] = (2 / pi) arcsin rho."""
    for rho in (0.5, -0.9999):
        assert abs(activations.lookup(jnp.sign).dual(1, 1, rho) - 2 / np.pi * np.arcsin(rho)) < 1e-13


def test_panels_end_at_kinks():
    ends = np.concatenate(activations.resolve(lambda x: np.abs(x - 0.3) + np.maximum(x + 1, 0), 9.0))
    for kink in (-1, 0.3):
        assert np.abs(ends - kink).min() < 1e-7


def test_clip_far_out_is_the_identity():
    assert activations.ACTIVATIONS["clip"].dual(1.0, 2.0, 0.5) == 0.5


def test_bad_activations_are_named():
    with pytest.raises(InputError, match="activation: expected a function or one of identity, clip"):
        activations.lookup("selu")
    with pytest.raises(InputError, match="bound: expected a positive number"):
        activations.clip(-1.0)
    with pytest.raises(InputError, match="activation: expected finite values"):
        activations.lookup(lambda x: np.where(x > 0, x, np.nan)).dual(1, 1, 0.5)
    with pytest.raises(InputError, match="activation: expected a function of one coordinate"):
        activations.lookup(lambda x: x.sum()).dual(1, 1, 0.5)
    with pytest.raises(InputError, match="activation: expected a function with few kinks"):
        activations.lookup(lambda x: np.floor(2000 * x)).dual(1, 1, 0.5)


@pytest.mark.parametrize(("a", "b", "c"), [(1.7, 0.6, 0.5), (0.4, 2.0, -0.7), (1.0, 1.0, 0.0), (1.2, 1.2, 1.2)])
def test_two_activations_by_steins_lemma(a, b, c):
    """E[x psi(y)] = c E[psi'(y)], and E[erf(x) relu(y)] = E[relu(y) erf(slope y / sqrt(1 + 2 v))] as one integral."""
    identity, relu, erf = (activations.lookup(name) for name in ("identity", "relu", "erf"))
    assert activations.cross_dual(identity, relu, a, b, c) == pytest.approx(c / 2, abs=1e-12)
    assert activations.cross_dual(relu, identity, a, b, c) == pytest.approx(c / 2, abs=1e-12)
    assert activations.cross_dual(identity, erf, a, b, c) == pytest.approx(2 * c / np.sqrt(np.pi * (1 + 2 * b)), abs=1e-12)
    inner = c / b / np.sqrt(1 + 2 * max(a - c * c / b, 0.0))
    density = stats.norm(scale=np.sqrt(b)).pdf
    known = integrate.quad(lambda y: y * special.erf(inner * y) * density(y), 0, 12 * np.sqrt(b), epsabs=1e-13)[0]
    assert activations.cross_dual(erf, relu, a, b, c) == pytest.approx(known, abs=1e-11)
    assert activations.cross_dual(relu, relu, a, b, c) == relu.dual(a, b, c)
