"""Example 3.1 written as a program is the law of law.py: the same kappa, kappa', draws."""

from functools import partial

import jax
import numpy as np
import pytest

from analysis import programs
from hierattn import Architecture, Law, kernels
from hierattn.netsor import Program, dot, matrix, nonlin, output, vector
from hierattn.netsor.limit import Limit
from tests.variants import variants

CASES = {
    "clip": (partial(programs.attention, 4, 2), Architecture(heads=2), kernels.activation("clip", 4)),
    "relu": (
        partial(programs.attention, 3, 2, "relu", 1.6, 1.3),
        Architecture(heads=2, sigma_q=1.6, sigma_v=1.3),
        kernels.activation("relu", 3),
    ),
    "tanh, one head": (partial(programs.attention, 2, 1, "tanh"), Architecture(), kernels.activation("tanh", 2)),
}


@pytest.fixture(params=variants(CASES, ["relu", "tanh, one head"]), scope="module")
def case(request):
    program, layer, K = CASES[request.param]
    return Limit(program()), Law(layer, K), layer.heads


def test_kappa_and_kappa_prime(case):
    limit, law, H = case
    with jax.enable_x64(True):
        expected, s = np.asarray(law.kappa), law.shape[0]
        units = np.eye(H * s * s).reshape(-1, H, s, s)
        kappa_prime = np.asarray(jax.jit(law.kappa_prime)(units)).reshape(len(units), -1)
    np.testing.assert_allclose(limit.kappa.value, np.kron(np.eye(H), expected[0]), rtol=0, atol=2e-14)
    np.testing.assert_allclose(limit.kappa_prime.value, kappa_prime, rtol=0, atol=5e-14)
    x = next(f for f, name in limit.program.names.items() if name == "x")
    np.testing.assert_allclose(limit.kernel(x).value, law.K, rtol=0, atol=1e-6)


def test_the_same_key_gives_the_same_draws(case):
    """Beyond one chunk of scores, with more than one part of outputs, in float32 and float64."""
    limit, law, _ = case
    for x64, tolerance in ((False, 2e-5), (True, 1e-12)):
        with jax.enable_x64(x64):
            key = jax.random.key(7)
            p, y = limit.sample_scores(key, 300), limit.sample(key, 300, 5)
            np.testing.assert_allclose(p, np.asarray(law.sample_scores(key, 300)).reshape(300, -1), rtol=0, atol=tolerance)
            np.testing.assert_allclose(y, law.sample(key, 300, 5), rtol=0, atol=tolerance)
            given = limit.sample(key, 300, 5, p)
            np.testing.assert_allclose(given, y, rtol=0, atol=tolerance)


def test_draws_agree_across_chunks_and_parts():
    program, layer, K = CASES["tanh, one head"]
    key, networks = jax.random.key(3), 70_000  # a chunk has 65,536 of them, a part with 16 coordinates half as many
    found, known = (np.asarray(law.sample(key, networks, 16)) for law in (Limit(program()), Law(layer, K)))
    np.testing.assert_allclose(found, known, rtol=0, atol=2e-5)
    assert np.abs(found[1:] - known[:-1]).max() > 1


def test_sigma_given_scores(case):
    limit, law, H = case
    assert limit.linear
    p = np.random.default_rng(0).normal(size=len(limit.program.dots))
    with jax.enable_x64(True):
        F = np.asarray(jax.jit(limit.factor)(p))
        np.testing.assert_allclose(F @ F.T, jax.jit(law.Sigma)(p.reshape(H, *law.shape)), rtol=0, atol=1e-13)


def test_another_kernel_has_other_draws():
    """The mutant: inputs through another function."""
    key = jax.random.key(0)
    found = Limit(programs.attention(3, 2, "erf")).sample(key, 100, 2)
    other = Law(Architecture(heads=2), kernels.activation("relu", 3)).sample(key, 100, 2)
    assert np.abs(np.asarray(found) - np.asarray(other)).max() > 0.1


@pytest.mark.parametrize("phi", ["relu", "erf"])
def test_deep_kernels_are_their_recursions(phi):
    """Depth 5, three correlated inputs, against the arc-cosine and arc-sine recursions written out here, to 1e-10."""
    C = kernels.rbf(3, 1.5)
    x, expected = vector("h", C, i=3), C
    for depth in range(5):
        x = nonlin(phi, matrix(f"W{depth}", sigma=1.3) @ x)
        expected = 1.69 * expected
        norm = np.sqrt(np.diag(expected))
        if phi == "relu":
            theta = np.arccos(np.clip(expected / np.outer(norm, norm), -1, 1))
            expected = np.outer(norm, norm) * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
        else:
            scale = np.sqrt(1 + 2 * np.diag(expected))
            expected = 2 / np.pi * np.arcsin(2 * expected / np.outer(scale, scale))
    found = Limit(Program("deep", matrix("R") @ x, x=x)).kernel(x)
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-10)
    assert np.all(np.abs(found.value - expected) <= found.error + 1e-13)


def test_deep_kernels_by_quadrature_stay_within_their_error():
    """erf as a function without a closed form, depth 5, against its closed form."""
    kernel = {}
    for name, phi in {"closed": "erf", "found": lambda z: jax.lax.erf(z)}.items():
        x = vector("x", kernels.rbf(3, 1.5), i=3)
        for depth in range(5):
            x = nonlin(phi, matrix(f"W{depth}", sigma=1.3) @ x)
        limit = Limit(Program("deep", matrix("R") @ x))
        kernel[name] = limit.kernel(x)
        assert limit.method == ("closed form" if name == "closed" else "quadrature")
    gap = np.abs(kernel["closed"].value - kernel["found"].value)
    assert np.all(gap <= kernel["found"].error)
    assert np.all(kernel["found"].error < 1e-10)


def weighed(p, v):
    return p @ v


def test_a_score_matrix_may_be_shared_and_gives_no_covariance():
    """Two heads, one W^K: their scores are uncorrelated, whatever the inputs; within a head they are not."""
    kappa_prime = Limit(programs.shared_keys(3)).kappa_prime.value
    assert np.all(kappa_prime[:9, 9:] == 0)
    assert np.all(kappa_prime[:9, :9] > 0)
    x = vector("x", kernels.rbf(2, 1.0), i=2)
    p = dot(matrix("Q") @ x, matrix("K") @ x.at(i="j"))
    program = Program("one head", output(weighed, p, matrix("V") @ x.at(i="j"), axes="i"))
    np.testing.assert_allclose(Limit(program).kappa_prime.value, np.kron(kernels.rbf(2, 1.0), kernels.rbf(2, 1.0)), atol=1e-15)
