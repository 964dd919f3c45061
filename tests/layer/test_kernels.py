import math

import numpy as np
import pytest

from hierattn import InputError, kernels


def test_from_inputs_is_the_gram_matrix():
    X = np.random.default_rng(0).normal(size=(3, 7))
    np.testing.assert_allclose(kernels.from_inputs(X), [[x @ y / 7 for y in X] for x in X], rtol=1e-14)
    assert kernels.from_inputs(X.astype(np.float32)).dtype == np.float32
    assert kernels.from_inputs(np.stack([X, X])).shape == (2, 3, 3)


@pytest.mark.parametrize(
    ("name", "diagonal", "off"),
    [("identity", 1, 0), ("clip", 1, 0), ("relu", 1 / 2, 1 / (2 * np.pi)), ("erf", 2 / np.pi * np.arcsin(2 / 3), 0)],
)
def test_the_papers_inputs(name, diagonal, off):
    np.testing.assert_allclose(kernels.activation(name, 3), np.where(np.eye(3), diagonal, off), atol=1e-15)


def test_paper_inputs_by_simulation():
    """x^i = phi(W^i h) at width 4000 against its limit, for a function without a closed form."""
    rng, n = np.random.default_rng(0), 4000
    h = rng.normal(size=n)
    X = np.abs(np.stack([rng.normal(size=(n, n)) @ h / np.sqrt(n) for _ in range(2)]) - 0.3)
    K = kernels.activation(lambda x: np.abs(x - 0.3), 2)
    error = (X[:, None] * X).std(axis=-1) / np.sqrt(n)
    assert np.all(np.abs(kernels.from_inputs(X) - K) < 5 * error + 0.1 * K)  # |h|^2 / n itself varies by 2 %


def test_functions_of_one_number_work_too():
    np.testing.assert_allclose(kernels.activation(math.tanh, 2), kernels.activation("tanh", 2), rtol=1e-14, atol=1e-16)
    ramp = kernels.activation(lambda x: x if x > 0 else 0.0, 2)
    np.testing.assert_allclose(ramp, kernels.activation("relu", 2), rtol=1e-12)


def test_any_preactivation_kernel():
    """Depth two of a ReLU network, entry by entry from the arc-cosine formula."""
    C = kernels.rbf(4, 2.0, variance=1.5)
    theta = np.arccos(np.clip(C / 1.5, -1, 1))
    expected = 1.5 * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
    np.testing.assert_allclose(kernels.activation("relu", preactivation=C), expected, rtol=1e-13)


def test_simple_families():
    np.testing.assert_allclose(kernels.equicorrelated(3, 0.25, 2.0), [[2, 0.5, 0.5], [0.5, 2, 0.5], [0.5, 0.5, 2]])
    np.testing.assert_allclose(kernels.rbf([0.0, 3.0], 1.5, 2.0), [[2, 2 * np.exp(-2)], [2 * np.exp(-2), 2]])
    np.testing.assert_array_equal(kernels.rbf(3, 1.0), kernels.rbf([0, 1, 2], 1.0))


RNG = np.random.default_rng(1)
SINGULAR = {
    "definite": kernels.rbf(5, 0.5),
    "rank two": (lambda X: X @ X.T)(RNG.normal(size=(5, 2))),
    "rank one": np.ones((4, 4)),
    "equal tokens": kernels.rbf([0.0, 1.0, 1.0, 2.0], 1.0),
    "zero": np.zeros((3, 3)),
    "a zero token": np.diag([1.0, 0.0, 2.0]),
    "smooth": kernels.rbf(20, 10.0),
}


@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factor_is_exact_whatever_the_rank(name, dtype):
    K = SINGULAR[name].astype(dtype)
    L = kernels.factor(kernels.check(K))
    assert L.dtype == dtype
    assert L.shape[1] <= len(K)
    np.testing.assert_allclose(L @ L.T, K, atol=40 * np.finfo(dtype).eps * np.abs(K).max(), rtol=0)


def test_factor_has_the_rank_of_the_kernel():
    assert [kernels.factor(SINGULAR[name]).shape[1] for name in ("definite", "rank two", "rank one", "equal tokens")] == [
        5,
        2,
        1,
        3,
    ]


def test_files(tmp_path):
    K = kernels.rbf(3, 1.0)
    np.save(tmp_path / "K.npy", K)
    np.savez(tmp_path / "K.npz", kernel=K, other=np.ones(2))
    np.savetxt(tmp_path / "K.csv", K, delimiter=",")
    for name in ("K.npy", "K.npz", "K.csv"):
        np.testing.assert_allclose(kernels.read(tmp_path / name), K)


BAD = np.array([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernels.check(BAD), "K: expected a positive semidefinite matrix, got eigenvalue -1"),
        (lambda: kernels.check([[1.0, 0.5], [0.4, 1.0]]), "K: expected a symmetric matrix, got entries that differ by 0.1"),
        (lambda: kernels.check([[1.0, np.nan], [np.nan, 1.0]]), "K: expected finite numbers, got 2 NaN or infinite"),
        (lambda: kernels.check(np.ones((2, 3))), "K: expected a real square matrix"),
        (lambda: kernels.check(np.eye(2) * 1j), "K: expected a real square matrix"),
        (lambda: kernels.check(np.array([["a"]])), "K: expected a real square matrix"),
        (lambda: kernels.from_inputs(np.ones(3)), "X: expected real inputs of shape (tokens, width)"),
        (lambda: kernels.from_inputs(np.full((2, 2), np.inf)), "X: expected finite numbers"),
        (lambda: kernels.activation("relu"), "tokens: expected either tokens or a preactivation kernel"),
        (lambda: kernels.activation("relu", 0), "tokens: expected a positive whole number, got 0"),
        (lambda: kernels.activation("relu", preactivation=BAD), "preactivation: expected a positive semidefinite"),
        (lambda: kernels.equicorrelated(3, -0.6), "correlation: expected between -1/(tokens - 1) = -0.5 and 1"),
        (lambda: kernels.equicorrelated(3, 0.1, -1), "variance: expected a finite number"),
        (lambda: kernels.rbf(2, 1.0, variance=-1.0), "variance: expected a finite number"),
        (lambda: kernels.rbf([], 1.0), "positions: expected a vector"),
        (lambda: kernels.rbf("a", 1.0), "positions: expected an array of numbers, got str"),
        (lambda: kernels.check([[1.0, 2.0], [3.0]]), "K: expected an array of numbers, got list"),
        (lambda: kernels.activation("relu", 10**6), "tokens: expected at most 8192 tokens"),
        (lambda: kernels.activation(["relu"], 4), "activation: expected a function or one of"),
        (lambda: kernels.activation(np.exp, preactivation=[[25.0]]), "activation: expected one that grows slower"),
        (lambda: kernels.rbf(3, 0.0), "length_scale: expected a positive number"),
        (lambda: kernels.rbf([[1.0]], 1.0), "positions: expected a vector"),
    ],
)
def test_bad_kernels_are_named(call, words):
    with pytest.raises(InputError) as raised:
        call()
    assert words in str(raised.value)
