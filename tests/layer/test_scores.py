"""Score functions: weights against their formulas, derivatives against JAX's, and what they keep, on both libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from hierattn.layer.scores import SCORE_FUNCTIONS
from tests import explicit

RNG = np.random.default_rng(0)
P, DA = RNG.normal(size=(2, 3, 4)) * 2, RNG.normal(size=(2, 3, 4))
ALLOWED = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1]], bool)
FUNCTIONS = pytest.mark.parametrize("scores", SCORE_FUNCTIONS.values(), ids=SCORE_FUNCTIONS)


@FUNCTIONS
@pytest.mark.parametrize("allowed", [None, ALLOWED], ids=["all keys", "masked"])
def test_weights_are_those_of_the_formula(scores, allowed):
    """NumPy's, JAX's and an axis elsewhere, against weights written out in tests/explicit.py."""
    layer = Architecture(heads=2, score_function=scores.name, mask=allowed)
    expected = explicit.attention(layer, P)
    p = P + scores.offset(P.shape[-1])
    np.testing.assert_allclose(scores.weights(p, allowed), expected, atol=1e-14)
    with jax.enable_x64(True):
        np.testing.assert_allclose(scores.weights(jnp.asarray(p), allowed), expected, atol=1e-14)
        np.testing.assert_allclose(layer.attention(jnp.asarray(P)), expected, atol=1e-14)
    moved = scores.weights(np.moveaxis(p, -1, 0), None if allowed is None else allowed.T[:, None], axis=0)
    np.testing.assert_allclose(np.moveaxis(moved, 0, -1), expected, atol=1e-14)


@FUNCTIONS
@pytest.mark.parametrize("allowed", [None, ALLOWED], ids=["all keys", "masked"])
def test_derivatives_are_those_of_jax(scores, allowed):
    with jax.enable_x64(True):
        A, back = jax.vjp(lambda p: scores.weights(p, allowed), jnp.asarray(P))
        np.testing.assert_allclose(scores.pull_back(A, jnp.asarray(DA), allowed), back(jnp.asarray(DA))[0], atol=1e-13)


@FUNCTIONS
def test_what_is_kept_is_kept_and_nothing_else(scores):
    """A flag that says too much, or too little, is wrong."""
    w, shifted, doubled = (scores.weights(p) for p in (P, P + 0.7, 2 * P))
    assert np.allclose(w, shifted) == scores.shift_invariant
    assert np.allclose(w.sum(axis=-1), 1) == scores.sums_to_one
    assert np.allclose(doubled, 2 * w) == scores.homogeneous


@FUNCTIONS
def test_the_largest_variance_bounds_all_and_is_nearly_reached(scores):
    K = kernels.from_inputs(np.abs(RNG.normal(size=(4, 6))))
    w = scores.weights(30 * RNG.normal(size=(20_000, 4)))
    u = np.einsum("nj,jk,nk->n", w, K, w)
    assert u.max() <= scores.largest(K) * (1 + 1e-12)
    assert scores.largest(K) == np.inf or u.max() > 0.7 * scores.largest(K)


@FUNCTIONS
def test_far_scores_are_finite(scores):
    for p in (np.array([1e4, -1e4, 0.0]), jnp.array([1e4, -1e4, 0.0])):
        assert np.all(np.isfinite(scores.weights(p)))


def test_sigmoid_of_one_key_by_quadrature():
    """E[v] and E[v^2] of one token with one key: one-dimensional integrals of the logistic function."""
    x, weight = np.polynomial.hermite_e.hermegauss(80)
    for head_dim in (None, 1000):
        law = Law(Architecture(sigma_q=1.4, score_function="sigmoid", head_dim=head_dim), np.array([[0.8]]))
        v = 0.8 / (1 + np.exp(-1.4 * 0.8 * x)) ** 2
        mean, square = (weight @ v**k / weight.sum() for k in (1, 2))
        found = law.moments()
        assert abs(found.variance - mean) < (1e-4 if head_dim is None else 5e-3) * mean
        if head_dim is None:
            assert abs(found.excess_kurtosis - 3 * (square / mean**2 - 1)) < 5e-3
            assert abs(law.marginal().excess_kurtosis - 3 * (square / mean**2 - 1)) < 1e-6
