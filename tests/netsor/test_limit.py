"""Covariances, the law of scalars, outputs given them, moments: each against another route."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from analysis import programs
from hierattn import Architecture, InputError, Law, UnsafeInputError, kernels
from hierattn.finite import theorem
from hierattn.netsor import Program, covariances, dot, matrix, nonlin, output, vector
from hierattn.netsor import limit as limit_module
from hierattn.netsor.limit import Limit
from tests.netsor.sharing import crossed, score_products
from tests.statistics import mean_agrees, same_distribution, within


def test_a_residual_network_is_its_recursion():
    """x <- x + V relu(W x): the kernel grows by sigma_V^2 times the arc-cosine kernel of 1.96 times itself."""
    program, K = programs.residual_mlp(blocks=3), kernels.equicorrelated(2, 0.5)
    limit = Limit(program)
    for b in range(1, 4):
        K = K + kernels.activation("relu", preactivation=1.96 * K)
        x = next(f for f, name in program.names.items() if name == f"x{b}")
        np.testing.assert_allclose(limit.kernel(x).value, K, rtol=1e-13)
    np.testing.assert_allclose(limit.kappa.value, K, rtol=1e-13)
    assert limit.method == "closed form"


def test_a_recurrent_network_by_two_integrals():
    """E[s^1 s^2], s^i = tanh(1.2 z + u^i), as a double integral over sum and difference, and the initial state's share."""
    C = 1.44 + kernels.rbf(2, 1.0)
    a, b = np.sqrt((C[0, 0] + C[0, 1]) / 2), np.sqrt((C[0, 0] - C[0, 1]) / 2)
    u, v = np.meshgrid(x := np.linspace(-9, 9, 721), x)  # the trapezoid rule, which is exact to rounding here
    known = np.sum(np.tanh(a * u + b * v) * np.tanh(a * u - b * v) * stats.norm.pdf(u) * stats.norm.pdf(v)) * (x[1] - x[0]) ** 2
    assert Limit(programs.recurrent()).kappa.value[0, 1] == pytest.approx(1.44 * known, abs=1e-9)


def test_different_functions_of_one_vector():
    """V relu(h) and V erf(h), and their sum with h, against Stein's lemma and arc-sine, arc-cosine kernels."""
    h, V = vector("h", 1.7), matrix("V", sigma=1.5)
    a, b = nonlin("relu", h), nonlin("erf", h)
    total = a + b + h
    limit = Limit(Program("sum", V @ total))
    ab = integrate.quad(lambda z: z * np.vectorize(jax.scipy.special.erf)(z) * stats.norm.pdf(z, scale=1.7**0.5), 0, 12)[0]
    erf2, relu2 = 2 / np.pi * np.arcsin(3.4 / 4.4), 1.7 / 2
    h_erf, h_relu = 1.7 * 2 / np.sqrt(np.pi * 4.4), 1.7 / 2
    expected = erf2 + relu2 + 1.7 + 2 * (ab + h_erf + h_relu)
    assert limit.kappa.value[0, 0] == pytest.approx(2.25 * expected, abs=1e-6)  # erf of JAX is float32 in `ab`
    assert limit.kernel(a + h).value[0, 0] == pytest.approx(relu2 + 1.7 + 2 * h_relu, abs=1e-11)


def gated(u, v):
    return u * jax.nn.sigmoid(v)


@pytest.mark.slow
def test_functions_of_two_vectors_have_honest_errors(monkeypatch):
    """E[(u sigmoid(v))^2] two layers deep by quasi-Monte Carlo, against tensor Gauss-Hermite quadrature."""
    monkeypatch.setattr(covariances, "BUDGET", 2**20)  # an error of 1e-4 is enough
    C, W = kernels.equicorrelated(2, 0.5), matrix("W", i=2, sigma=1.3)
    h = vector("h", C, i=2)
    g = nonlin(gated, h.at(i=0), h.at(i=1))
    k = W @ g
    x = nonlin(gated, k.at(i=0), k.at(i=1))
    limit = Limit(Program("gated twice", matrix("R") @ x))
    found = limit.kernel(x)
    z, w = np.polynomial.hermite_e.hermegauss(80)
    w = np.outer(w, w) / w.sum() ** 2

    def second(L):
        u, v = L @ np.stack(np.meshgrid(z, z, indexing="ij")).reshape(2, -1)
        return float(w.ravel() @ (u / (1 + np.exp(-v))) ** 2)

    known = second(np.sqrt(1.69 * second(np.linalg.cholesky(C))) * np.eye(2))
    assert limit.method == "quasi-Monte Carlo"
    assert abs(found.value[0, 0] - known) < found.error[0, 0] < 1e-4 * known


def test_the_second_term_of_isserlis():
    """Crossed matrices: Cov(<A x, B z>, <B x, A z>) = E[Ax Az] E[Bz Bx], found at width 64 in 20,000 networks too."""
    law = Limit(crossed())
    K = law.kernel(next(f for f, name in law.program.names.items() if name == "x")).value
    expected = 1.69 * np.array([[K[0, 0] * K[1, 1], K[0, 1] ** 2], [K[0, 1] ** 2, K[0, 0] * K[1, 1]]])
    np.testing.assert_allclose(law.kappa_prime.value, expected, rtol=1e-14)
    gap, error, across, without = score_products(crossed(), 64, 20_000, 0)
    assert gap < 5
    assert across == pytest.approx(expected[0, 1])
    assert error < 0.02
    assert without > 8  # the first term alone is seen to be wrong


def test_sharing_keys_leaves_no_covariance_in_networks_either():
    gap, error, across, _ = score_products(programs.shared_keys(), 64, 20_000, 1)
    assert gap < 5
    assert (across, error < 0.02) == (0.0, True)


def test_moments_of_attention_are_those_of_the_law():
    limit, law = Limit(programs.attention(2, 2)), Law(Architecture(heads=2), np.eye(2))
    found, known, joint = limit.moments(), law.moments(), law.joint_moments()
    assert within(found["second_moments"].value, joint.mean, found["second_moments"].error + 1e-12)
    kurtosis, error = (x[0] for x in found["excess_kurtosis"])
    assert abs(kurtosis - known.excess_kurtosis) < error < 0.02
    correlation, error = (x[0] for x in found["square_correlation"])
    assert abs(correlation - known.excess_kurtosis / 3 / (2 + known.excess_kurtosis)) < error < 0.01
    assert np.all(np.abs(found["mean"].value) <= found["mean"].error)


def test_expectations_given_scores():
    """Quasi-random coordinates against closed forms given Sigma(p), for every psi of the theorem; sigma 3 % off is seen."""
    limit = Limit(programs.cross_attention())
    p = limit.sample_scores(jax.random.key(0), 40)
    F = np.asarray(jax.vmap(limit.factor)(p), float)
    for psi in theorem.psis().values():
        found, known = np.asarray(limit.expect(p, psi.average)), psi.given(F @ F.swapaxes(1, 2))
        np.testing.assert_allclose(found, known, atol=4e-3)
    assert np.abs(found - psi.given(1.03 * F @ F.swapaxes(1, 2))).max() > 4e-3


def bounded(p, g):
    return jnp.tanh(p + g)


def test_outputs_that_are_not_linear():
    """y = tanh(p + g): conditional mean by one integral, and the law of y through that of p + g ~ N(0, 2)."""
    h = vector("h")
    p = dot(matrix("A") @ h, matrix("B") @ h)
    limit = Limit(Program("tanh", output(bounded, p, matrix("V") @ h), p=p))
    assert not limit.linear
    y = np.asarray(limit.sample(jax.random.key(0), 20_000), float)
    assert same_distribution(np.arctanh(y), np.sqrt(2) * np.random.default_rng(0).normal(size=20_000))
    given = np.asarray(limit.sample(jax.random.key(1), 20_000, 1, np.full((20_000, 1), 0.7)), float)
    known = integrate.quad(lambda z: np.tanh(0.7 + z) * stats.norm.pdf(z), -9, 9)[0]
    assert mean_agrees(given[:, 0], known)
    assert not mean_agrees(given[:, 0], 1.1 * known)
    average = limit.expect(np.full((1, 1), 0.7), lambda y: jnp.mean(y, axis=-1))
    assert float(average[0]) == pytest.approx(known, abs=1e-3)


def test_bad_arguments():
    limit = Limit(programs.gate())
    with pytest.raises(InputError, match=r"p: expected shape \(3, 1\), got \(3, 2\)"):
        limit.sample(jax.random.key(0), 3, 1, np.zeros((3, 2)))
    with pytest.raises(InputError, match="networks: expected a positive whole number"):
        limit.sample(jax.random.key(0), 0)
    with pytest.raises(InputError, match="coordinates: expected a positive whole number"):
        limit.sample(jax.random.key(0), 1, -1)
    with pytest.raises(InputError, match="rng_key: expected a JAX random key"):
        limit.sample_scores(0, 1)


def test_large_programs_are_refused(monkeypatch):
    monkeypatch.setattr(limit_module, "LARGEST", 7)
    with pytest.raises(UnsafeInputError, match="program: expected at most 7 scalars or vectors, got 8"):
        Limit(programs.attention(2, 2))


def test_no_recompilation_for_other_numbers_of_networks():
    limit = Limit(programs.gate())
    limit.sample(jax.random.key(0), 10, 3)
    compiled = limit_module._draw._cache_size()
    limit.sample(jax.random.key(1), 500, 3)
    limit.sample(jax.random.key(1), 7, 3, np.zeros((7, 1)))
    assert limit_module._draw._cache_size() == compiled


def test_more_draws_than_memory_are_refused():
    with pytest.raises(UnsafeInputError, match=r"networks = 10000000 x coordinates = 1000: expected at most .* use stream"):
        Limit(programs.gate()).sample(jax.random.key(0), 10_000_000, 1000)
