from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hierattn.numerics.wishart import assemble, bartlett, chi_square, entries_below, factor_last
from tests.statistics import follows, mean_agrees, same_distribution

factors = jax.jit(factor_last)
chi_squares = jax.jit(chi_square, static_argnums=2)


@pytest.mark.parametrize("df", [0.3, 1.0, 2.0, 3.0, 64.0, 4096.0])
def test_chi_square_follows_its_distribution(df):
    """50,000 draws: a Kolmogorov distance of .012 would be seen."""
    x = np.asarray(chi_squares(jax.random.key(0), np.float32(df), (50_000,)))
    assert follows(x, stats.chi2(df).cdf)
    assert not follows(x * 1.05, stats.chi2(df).cdf) or df < 1


def test_degrees_of_freedom_broadcast():
    x = chi_squares(jax.random.key(1), np.array([1.0, 5.0, 50.0], np.float32), (40_000, 3))
    assert mean_agrees(x, [1.0, 5.0, 50.0])
    assert mean_agrees((np.asarray(x) - [1.0, 5.0, 50.0]) ** 2, [2.0, 10.0, 100.0])


@pytest.mark.parametrize(("df", "size"), [(7, 3), pytest.param(3, 3, marks=pytest.mark.slow), (2, 4), (1, 3)])
def test_bartlett_against_explicit_matrices(df, size):
    """Entries of B B' against Z Z' with Z drawn in full, below and above full rank; wrong degrees of freedom are seen."""
    B = np.asarray(jax.jit(lambda key: bartlett(key, df, size, (30_000,), jnp.float32))(jax.random.key(2)))
    assert B.shape == (30_000, size, min(df, size))
    np.testing.assert_array_equal(B, np.tril(B))
    Z = np.random.default_rng(0).normal(size=(30_000, size, df + 1))
    W, explicit, mutant = (x @ x.swapaxes(1, 2) for x in (B, Z[..., :df], Z))
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    assert all(same_distribution(W[:, i, j], explicit[:, i, j]) for i, j in pairs)
    assert not all(same_distribution(W[:, i, j], mutant[:, i, j]) for i, j in pairs)
    product = lambda W: np.einsum("nij,nkl->nijkl", W, W)  # noqa: E731
    identity = np.eye(size)
    outer = np.einsum("ij,kl->ijkl", identity, identity)
    expected = df**2 * outer + df * (outer.transpose(0, 2, 1, 3) + outer.transpose(0, 2, 3, 1))
    assert mean_agrees(product(W), expected)


@partial(jax.jit, static_argnums=(1, 2, 3))
def wishart_last(key, df, size, networks):
    """B of `bartlett`, put together from its random numbers with networks on the last axis."""
    r = min(df, size)
    key_diagonal, key_below = jax.random.split(key)
    diagonal = jnp.sqrt(chi_square(key_diagonal, df - jnp.arange(r, dtype=jnp.float32)[:, None], (r, networks)))
    return assemble(diagonal, jax.random.normal(key_below, (entries_below(size, r), networks)), size)


@pytest.mark.parametrize(("df", "size"), [(7, 3), pytest.param(3, 3, marks=pytest.mark.slow), (2, 4), (1, 3)])
def test_assembled_factors_against_explicit_matrices(df, size):
    """As Bartlett's above, 20,000 matrices; one degree of freedom more is seen."""
    B = np.moveaxis(wishart_last(jax.random.key(3), df, size, 20_000), -1, 0)
    np.testing.assert_array_equal(B, np.tril(B))
    Z = np.random.default_rng(1).normal(size=(20_000, size, df + 1))
    W, explicit, mutant = (x @ x.swapaxes(1, 2) for x in (B, Z[..., :df], Z))
    assert mean_agrees(W, df * np.eye(size))
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    assert all(same_distribution(W[:, i, j], explicit[:, i, j]) for i, j in pairs)
    assert not all(same_distribution(W[:, i, j], mutant[:, i, j]) for i, j in pairs)


@pytest.mark.parametrize(("size", "r"), [(1, 1), (4, 4), (5, 2), (3, 1)])
def test_entries_go_where_they_belong(size, r):
    expected = np.tril(1.0 + np.arange(size * r * 6).reshape(6, size, r))
    i, j = np.tril_indices(size, -1, r)
    assert entries_below(size, r) == len(i)
    diagonal, below = (x.T.astype(np.float32) for x in (expected[:, range(r), range(r)], expected[:, i, j]))
    found = jax.jit(assemble, static_argnums=2)(diagonal, below, size)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(found), -1, 0), expected)


def grams(kind, s, dtype):
    """50 Gram matrices (network, token, token) of a kind."""
    X = np.random.default_rng(2).normal(size=(50, s, 3 if kind == "rank 3" else 20))
    if kind == "zero token":
        X[:, [0, s // 2]] = 0
    if kind == "equal tokens":
        X[:, s // 2] = X[:, 0]
    if kind == "uneven":
        X *= np.geomspace(1e-4, 1e4, s)[:, None]
    return (X @ X.swapaxes(1, 2) / X.shape[-1]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("s", [2, 4, 12])
@pytest.mark.parametrize("kind", ["definite", "zero token", "equal tokens", "rank 3", "zero", "uneven"])
def test_cholesky_of_singular_matrices(kind, s, dtype):
    """L L' = G to rounding, entry by entry relative to the tokens' norms; never NaN."""
    G = np.zeros((50, s, s), dtype) if kind == "zero" else grams(kind, s, dtype)
    with jax.enable_x64(dtype == np.float64):
        L = np.moveaxis(np.asarray(factors(np.moveaxis(G, 0, -1))), -1, 0)
    assert L.dtype == dtype
    norm = np.sqrt(np.einsum("mii->mi", G))
    error = np.abs(L @ L.swapaxes(1, 2) - G)
    assert np.all(error <= 50 * s * np.finfo(dtype).eps * norm[:, :, None] * norm[:, None])
    if kind == "zero token":
        np.testing.assert_array_equal(L[:, [0, s // 2]], 0)


@pytest.mark.parametrize("s", [2, 3, 8])
def test_cholesky_where_heads_look_at_one_key(s):
    """20,000 Gram matrices of softmax weights so sharp that many are nearly alike: without pivots some are wrong by a tenth."""
    p = 12 * np.random.default_rng(4).normal(size=(20_000, s, 15))
    w = np.exp(p - p.max(axis=-1, keepdims=True))
    w /= w.sum(axis=-1, keepdims=True)
    G = (w @ w.swapaxes(1, 2)).astype(np.float32)
    L = np.moveaxis(np.asarray(factors(np.moveaxis(G, 0, -1))), -1, 0).astype(float)
    norm = np.sqrt(np.einsum("mii->mi", G))
    error = np.abs(L @ L.swapaxes(1, 2) - G)
    assert np.all(error <= 50 * s * np.finfo(np.float32).eps * norm[:, :, None] * norm[:, None])
