"""Compressed laws of a variance against the measures they stand for: sums over all points, all pairs, all triples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn.numerics import mixtures
from hierattn.numerics.mixtures import Nodes, add, compress, leaving_one_out, multiply, stack, sum_of

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def measure(points, seed=0):
    """Points of an uneven law of log v, with uneven weights."""
    rng = np.random.default_rng(seed)
    return rng.gamma(3.0, 0.3, points) - 2.0, rng.dirichlet(np.ones(points))


def gaussians(x, w, y):
    """Density at y of N(0, e^x) averaged with weights w."""
    return np.exp(-(y[:, None] ** 2) / 2 * np.exp(-x) - x / 2) @ w / np.sqrt(2 * np.pi)


@pytest.mark.parametrize(("points", "mass"), [(60, 1.0), (1000, 1.0), (1000, 0.3), (2 * mixtures.BINS, 1.0)])
@pytest.mark.parametrize("size", [2, 7, 40])
def test_polynomials_up_to_twice_the_size_are_exact(points, mass, size):
    x, w = measure(points)
    nodes = compress(jnp.asarray(x), jnp.asarray(mass * w), size)
    assert nodes.x.shape == nodes.w.shape == (size,)
    assert np.all(nodes.w > 0)
    assert float(nodes.w.sum()) == pytest.approx(mass, rel=1e-13)
    z, z_nodes = ((t - x.mean()) / np.ptp(x) for t in (x, np.asarray(nodes.x)))
    for k in range(2 * size):
        T = np.polynomial.chebyshev.Chebyshev.basis(k)
        assert abs(T(z_nodes) @ nodes.w - mass * T(z) @ w) < 1e-12, k
    if size == 2:
        assert abs(z_nodes**4 @ nodes.w - mass * z**4 @ w) > 1e-4


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ([0.3], [1.0]),
        ([0.3, 0.3, 0.3], [0.2, 0.3, 0.5]),
        ([-1.0, 0.5, 2.0], [0.2, 0.3, 0.5]),
        ([-1.0, 0.5, 2.0, 7.0, -9.0], [0.2, 0.3, 0.5, 0.0, 0.0]),
    ],
)
def test_a_measure_of_fewer_points_than_nodes_is_kept_as_it_is(x, w):
    nodes = compress(jnp.asarray(x), jnp.asarray(w), 10)
    assert np.all(np.isfinite(nodes.x))
    assert np.all(np.asarray(nodes.w) >= 0)
    found, given = (gaussians(np.asarray(a), np.asarray(b), np.linspace(0, 8, 50)) for a, b in (nodes, (x, w)))
    np.testing.assert_allclose(found, given, rtol=1e-12)


@pytest.mark.parametrize("points", [2 * mixtures.BINS + 1, 50_000])
def test_bins_before_compression_cost_nothing(points):
    """A wide law of v (factor 300 between its ends), whose Gaussians are smooth over a bin."""
    x, w = measure(points)
    y = np.linspace(0, 6, 100)
    exact = gaussians(x, w, y)
    nodes = compress(jnp.asarray(x), jnp.asarray(w))
    assert np.abs(gaussians(*map(np.asarray, nodes), y) - exact).max() < 1e-10 * exact[0]
    for k in (1, 2):
        assert np.exp(k * np.asarray(nodes.x)) @ nodes.w == pytest.approx(np.exp(k * x) @ w, rel=1e-10)


@pytest.mark.parametrize(("operation", "brute"), [(add, np.add), (multiply, np.multiply)])
def test_pairs_of_variances(operation, brute):
    a, b = (compress(*map(jnp.asarray, measure(100, seed)), size) for seed, size in ((1, 12), (2, 9)))
    found = operation(a, b)
    v = brute.outer(np.exp(a.x), np.exp(b.x)).ravel()
    y = np.linspace(0, 8, 60)
    np.testing.assert_allclose(
        gaussians(*map(np.asarray, found), y), gaussians(np.log(v), np.outer(a.w, b.w).ravel(), y), 1e-12
    )


def test_triples_of_one_law():
    a = compress(*map(jnp.asarray, measure(100)), 8)
    v = np.exp(a.x)
    total = (v[:, None, None] + v[:, None] + v).ravel()
    w = np.einsum("i,j,k->ijk", a.w, a.w, a.w).ravel()
    y = np.linspace(0, 8, 60)
    np.testing.assert_allclose(gaussians(*map(np.asarray, sum_of(a, 3)), y), gaussians(np.log(total), w, y), rtol=1e-12)


def cumulants(nodes):
    v, w = np.exp(np.asarray(nodes.x)), np.asarray(nodes.w)
    mean = w @ v
    return np.array([mean, w @ (v - mean) ** 2, w @ (v - mean) ** 3])


@pytest.mark.parametrize("count", [1, 2, 5, 64, 255])
def test_cumulants_of_sums_add_up(count):
    a = compress(*map(jnp.asarray, measure(1000)))
    np.testing.assert_allclose(cumulants(sum_of(a, count)), count * cumulants(a), rtol=1e-9)


def test_laws_side_by_side_are_filled_up_with_empty_nodes():
    rows = [Nodes(jnp.array([1.0, 2.0]), jnp.array([0.4, 0.6])), Nodes(jnp.array([5.0]), jnp.array([1.0]))]
    x, w = stack(rows)
    np.testing.assert_array_equal(x, [[1.0, 2.0], [5.0, 5.0]])
    np.testing.assert_array_equal(w, [[0.4, 0.6], [1.0, 0.0]])


@pytest.mark.parametrize("points", [1, 300, 2 * mixtures.BINS + 100])
def test_derivatives_are_those_of_the_measure(points):
    """E[exp(-1 / v) v^{-1/2}], log v = theta_0 z + theta_1 sin z with weights tilted by theta_2: value and slopes."""
    z, w = map(jnp.asarray, measure(points))

    def law(theta):
        tilted = w * jnp.exp(theta[2] * z)
        return Nodes(theta[0] * z + theta[1] * jnp.sin(z), tilted / tilted.sum())

    found, exact = derivatives(lambda theta: compress(*law(theta))), derivatives(law)
    for one, other, tolerance in zip(found, exact, (1e-12, 1e-8), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_derivatives_go_through_sums():
    """The sum of two variances, then with a third, against all triples: value and slopes."""
    z, w = map(jnp.asarray, measure(40))

    def law(theta):
        return Nodes(theta[0] * z + theta[1] * jnp.sin(z), w * jnp.exp(theta[2] * z) / jnp.sum(w * jnp.exp(theta[2] * z)))

    def triples(theta):
        x, w = law(theta)
        x = jnp.logaddexp(jnp.logaddexp(x[:, None, None], x[:, None]), x).ravel()
        return Nodes(x, jnp.einsum("i,j,k->ijk", w, w, w).ravel())

    found, exact = derivatives(lambda theta: sum_of(law(theta), 3)), derivatives(triples)
    for one, other, tolerance in zip(found, exact, (1e-12, 1e-8), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("points", [300, 2 * mixtures.BINS + 100])
def test_gradients_of_equal_shapes_are_compiled_once(points, caplog):
    """Also those that are taken outside of jit, whose operations JAX runs one by one."""
    z, w = map(jnp.asarray, measure(points))
    slope = jax.grad(lambda scale: jnp.sum(compress(scale * z, w).x))
    slope(1.0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        slope(1.1)
    assert "Finished XLA compilation" not in caplog.text


def derivatives(law):
    """Value and gradient of an expectation over a law with three parameters."""

    def expectation(theta):
        nodes = law(theta)
        return jnp.sum(nodes.w * jnp.exp(-jnp.exp(-nodes.x) - nodes.x / 2))

    theta = jnp.array([1.0, 0.3, 0.2])
    return jax.jit(jax.value_and_grad(expectation))(theta)


def test_leaving_one_out():
    """Row 0 holds all parts, row r all but the r-th; masses, means and variances exactly, Gaussians to the bins' width."""
    parts = RNG.gamma(2.0, 0.5, (4, 500))
    points, weights = leaving_one_out(parts)
    assert points.shape == weights.shape == (5, 2 * mixtures.BINS)
    y = np.linspace(0, 5, 20)
    for r in range(5):
        rest = np.delete(parts, r - 1, axis=0).ravel() if r else parts.ravel()
        x, w = np.asarray(points[r]), np.asarray(weights[r])
        assert np.all(w >= 0)
        np.testing.assert_allclose([w.sum(), w @ x, w @ x**2], [1, rest.mean(), (rest**2).mean()], rtol=1e-12)
        np.testing.assert_allclose(gaussians(x, w, y), gaussians(rest, np.full(rest.size, 1 / rest.size), y), rtol=1e-8)
