import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hierattn.wishart import bartlett, chi_square
from tests.statistics import follows, mean_agrees, same_distribution


@pytest.mark.parametrize("df", [0.3, 1.0, 2.0, 3.0, 64.0, 4096.0])
def test_chi_square_follows_its_distribution(df):
    """50,000 draws: a Kolmogorov distance of .012 would be seen."""
    x = chi_square(jax.random.key(0), jnp.float32(df), (50_000,))
    assert follows(x, stats.chi2(df).cdf)
    assert not follows(x * 1.05, stats.chi2(df).cdf) or df < 1


def test_degrees_of_freedom_broadcast():
    x = chi_square(jax.random.key(1), jnp.array([1.0, 5.0, 50.0]), (40_000, 3))
    assert mean_agrees(x, [1.0, 5.0, 50.0])
    assert mean_agrees((np.asarray(x) - [1.0, 5.0, 50.0]) ** 2, [2.0, 10.0, 100.0])


@pytest.mark.parametrize(("df", "size"), [(7, 3), (3, 3), (2, 4), (1, 3)])
def test_bartlett_against_explicit_matrices(df, size):
    """Entries of B B' against Z Z' with Z drawn in full, below and above full rank; wrong degrees of freedom are seen."""
    B = np.asarray(bartlett(jax.random.key(2), df, size, (30_000,), jnp.float32))
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
