"""From scores to weights: against their formulas, derivatives against JAX's, and what they keep, on both libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from hierattn.layer.scores import SCORE_FUNCTIONS
from tests import explicit

RNG = np.random.default_rng(0)
P, DA = RNG.normal(size=(2, 4, 4)) * 2, RNG.normal(size=(2, 4, 4))
ALLOWED = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]], bool)
LAYERS = {name: Architecture(heads=2, score_function=name) for name in SCORE_FUNCTIONS}
LAYERS |= {f"{name}, masked": layer.replace(mask=ALLOWED) for name, layer in LAYERS.items()}
LAYERS |= {f"{name}, capped": layer.replace(cap=1.3) for name, layer in LAYERS.items()}
LAYERS |= {
    "sink": Architecture(heads=2, sink=0.3),
    "sinks, masked, capped, bias": Architecture(heads=2, sink=[0.3, -2.0], mask=ALLOWED, cap=1.3, bias=DA),
    "window": Architecture(heads=2, window=2),
    "window, causal": Architecture(heads=2, window=3, mask="causal"),
    "chunk": Architecture(heads=2, chunk=3, mask="causal"),
}
EVERY = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


@EVERY
def test_weights_are_those_of_the_formula(layer):
    """NumPy's, JAX's, a token's and a head's alone, with keys elsewhere, against weights written out in tests/explicit.py."""
    expected, weighing = explicit.attention(layer, P), layer.weighing(4, 4)
    np.testing.assert_allclose(weighing.weights(P), expected, atol=1e-14)
    with jax.enable_x64(True):
        np.testing.assert_allclose(layer.attention(jnp.asarray(P)), expected, atol=1e-14)
    for i in range(4):
        keys = np.flatnonzero(layer.allowed(4, 4)[i])
        row, p = weighing.of_token(i, keys, 2), P[:, i, keys]
        np.testing.assert_allclose(row.weights(p), expected[:, i, keys], atol=1e-14)
        np.testing.assert_allclose(row.keys_first().weights(p.T[..., None])[..., 0].T, expected[:, i, keys], atol=1e-14)
        for a in range(2):
            np.testing.assert_allclose(row.of_head(a).weights(p[a]), expected[a, i, keys], atol=1e-14)
            found = row.of_head(a).keys_first().weights(p[a][:, None])[:, 0]
            np.testing.assert_allclose(found, expected[a, i, keys], atol=1e-14)
    some = np.array([2, 0])
    found = weighing.of_queries(some, 2, 4).weights(P[:, some, :, None])
    np.testing.assert_allclose(found[..., 0], expected[:, some], atol=1e-14)


@EVERY
def test_derivatives_are_those_of_jax(layer):
    weighing = layer.weighing(4, 4)
    with jax.enable_x64(True):
        p, dA = jnp.asarray(P), jnp.asarray(DA)
        A, back = jax.vjp(weighing.weights, p)
        np.testing.assert_allclose(weighing.pull_back(p, A, dA), back(dA)[0], atol=1e-13)


@EVERY
def test_what_is_kept_is_kept_and_nothing_else(layer):
    """A flag that says too much, or too little, is wrong. Scores of -1 take the largest bias: nothing is zero everywhere."""
    weighing = layer.weighing(4, 4)
    w, shifted, doubled = (weighing.weights(p) for p in (P, P + 0.7, 2 * P))
    assert np.allclose(w, shifted) == weighing.shift_invariant
    assert np.allclose(w.sum(axis=-1), 1) == weighing.sums_to_one
    assert np.allclose(doubled, 2 * w) == weighing.homogeneous


@EVERY
def test_the_largest_variance_bounds_all_and_is_nearly_reached(layer):
    """Looked at for the last token; bounds of sigmoid and of capped scores need not be reached."""
    K = kernels.from_inputs(np.abs(RNG.normal(size=(4, 6))))
    keys = np.flatnonzero(layer.allowed(4, 4)[3])
    row = layer.weighing(4, 4).of_token(3, keys, 2).of_head(0)
    w, K = row.weights(30 * RNG.normal(size=(20_000, len(keys)))), K[np.ix_(keys, keys)]
    u, largest = np.einsum("nj,jk,nk->n", w, K, w), row.largest(K)
    assert u.max() <= largest * (1 + 1e-12)
    assert largest == np.inf or layer.cap or u.max() > 0.7 * largest


@EVERY
def test_far_scores_are_finite(layer):
    p = np.zeros((2, 4, 4))
    p[..., 0], p[..., 1] = 1e4, -1e4
    for far in (p, jnp.asarray(p)):
        assert np.all(np.isfinite(layer.weighing(4, 4).weights(far)))


@pytest.mark.parametrize(
    ("layer", "plain"),
    [
        (Architecture(heads=2, cap=1e9), Architecture(heads=2)),
        (Architecture(heads=2, sink=-800.0), Architecture(heads=2)),
        (Architecture(heads=2, window=4), Architecture(heads=2)),
        (Architecture(heads=2, chunk=4, mask="causal"), Architecture(heads=2, mask="causal")),
    ],
    ids=["cap", "sink", "window", "chunk"],
)
def test_limits_are_the_plain_weights(layer, plain):
    """A cap beyond all scores, a sink that nobody looks at, a window as long as the sequence: the same to rounding."""
    np.testing.assert_allclose(layer.weighing(4, 4).weights(P), plain.weighing(4, 4).weights(P), rtol=1e-12, atol=1e-15)


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
