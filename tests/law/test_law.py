import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, InputError, Law, UnsafeInputError, kernels, rotary_frequencies
from hierattn.law import sampling
from tests.statistics import mean_agrees

KEY = jax.random.key(0)
K = kernels.rbf(4, 1.5)
LAYERS = {
    "limit": Architecture(heads=2),
    "causal": Architecture(heads=2, mask="causal", sigma_q=2.0),
    "rotary": Architecture(heads=2, rotary=rotary_frequencies(8)),
    "finite": Architecture(heads=2, head_dim=8),
    "narrow": Architecture(heads=4, head_dim=2, key_value_heads=2),
    "finite rotary": Architecture(heads=2, head_dim=8, rotary=rotary_frequencies(8)),
    "linear": Architecture(heads=2, head_dim=8, scaling="linear"),
    "biased": Architecture(heads=2, bias=np.arange(32.0).reshape(2, 4, 4) / 16),
    "unequal": Architecture(heads=2, sigma_q=[0.5, 2.0], sigma_v=[1.0, 3.0]),
    "identity": Architecture(heads=2, score_function="identity"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_draws_do_not_depend_on_how_many_are_asked_for(name):
    law = Law(LAYERS[name], K)
    many = np.asarray(law.sample(KEY, 50, 3))
    assert many.shape == (50, 4, 3)
    assert np.all(np.isfinite(many))
    np.testing.assert_array_equal(many[:7], law.sample(KEY, 7, 3))
    assert not np.array_equal(many, law.sample(jax.random.key(1), 50, 3))


@pytest.mark.parametrize("name", LAYERS)
def test_sampling_is_scores_then_outputs(name):
    law = Law(LAYERS[name], K)
    p = law.sample_scores(KEY, 20)
    assert p.shape == (20, law.layer.heads, 4, 4)
    np.testing.assert_allclose(law.sample_given(KEY, p, 3), law.sample(KEY, 20, 3), atol=2e-5)
    if law.layer.head_dim is None:
        np.testing.assert_allclose(law.sample_Sigma(KEY, 20), jax.jit(law.Sigma)(p), atol=2e-5)


def test_streams_are_the_sample_in_parts(monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 512)
    monkeypatch.setattr(sampling, "PART", 256)
    law = Law(Architecture(heads=2), K)
    parts = list(law.stream(KEY, 100, 3))
    assert [len(part.y) for part in parts] == [8] * 12 + [4]
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), law.sample(KEY, 100, 3))
    p = law.sample_scores(KEY, 100)
    np.testing.assert_array_equal(np.concatenate([part.p for part in parts]), p)
    np.testing.assert_allclose(law.sample_given(KEY, p, 3), law.sample(KEY, 100, 3), atol=2e-5)


@pytest.mark.parametrize("head_dim", [None, 8])
def test_no_randomness_is_used_twice(monkeypatch, head_dim):
    """Across chunks and their parts: all scores differ, and with scores out of the way all outputs."""
    monkeypatch.setattr(sampling, "CHUNK", 512)
    monkeypatch.setattr(sampling, "PART", 256)
    p = np.asarray(Law(Architecture(heads=2, head_dim=head_dim), K).sample_scores(KEY, 100))
    y = np.asarray(Law(Architecture(heads=2, head_dim=head_dim, sigma_q=0.0), np.eye(4)).sample(KEY, 100, 3))[:, 0]
    F = np.concatenate([part.F for part in Law(Architecture(heads=2, head_dim=4, sigma_q=0.0), K).stream(KEY, 100)])
    for draws in (p, y, F):
        assert len(np.unique(draws.reshape(100, -1), axis=0)) == 100
        assert len(np.unique(draws.reshape(100, -1)[:, 0])) == 100


@pytest.mark.parametrize("name", ["causal", "unequal", "narrow"])
def test_coordinates_have_the_covariance_of_their_network(name):
    """E[y y'] against E[Sigma] behind the same draws, networks as units."""
    law = Law(LAYERS[name], K)
    y = np.asarray(law.sample(KEY, 4000, 20), float)
    S = np.einsum("mic,mjc->mij", y, y) / 20
    Sigma = np.asarray(law.sample_Sigma(KEY, 4000), float)
    assert mean_agrees(S - Sigma, 0.0)
    assert not mean_agrees(S - 1.2 * Sigma, 0.0)


def test_sigma_against_the_formula():
    law = Law(Architecture(heads=3, sigma_v=[1.0, 2.0, 0.5], sigma_o=1.5, mask="causal"), K)
    p = np.asarray(law.sample_scores(KEY, 1))[0]
    A = np.tril(np.exp(np.asarray(p, float)))
    A /= A.sum(axis=-1, keepdims=True)
    expected = sum((o * 1.5) ** 2 * A_a @ K @ A_a.T for o, A_a in zip([1.0, 2.0, 0.5], A, strict=True)) / 3
    np.testing.assert_allclose(law.Sigma(p), expected, rtol=2e-6)
    np.testing.assert_allclose(law.kappa, np.multiply.outer(np.array([1.5, 3.0, 0.75]) ** 2, K), rtol=1e-6)


@pytest.mark.parametrize("name", ["limit", "rotary", "biased", "unequal"])
def test_kappa_prime_against_the_dense_matrix(name):
    """The operator, applied to every unit matrix, against the covariance formula written with four indices."""
    with jax.enable_x64(True):
        law = Law(LAYERS[name], K)
        s = 4
        units = np.broadcast_to(np.eye(s * s).reshape(s * s, 1, s, s), (s * s, 2, s, s))
        dense = np.asarray(jax.jit(law.kappa_prime)(units))
    i, j, k, m = np.indices((s, s, s, s))
    rho = np.cos(np.multiply.outer((j - i) - (m - k), rotary_frequencies(8))).mean(axis=-1) if name == "rotary" else 1.0
    expected = K[i, k] * K[j, m] * rho
    for a, q in enumerate(law.layer.score_scale):
        np.testing.assert_allclose(dense[:, a].reshape(s, s, s, s), q**2 * expected, atol=1e-12)


def test_float32_against_float64():
    """Sigma to eps (8 + max |p|)."""
    for score_scale in (0.1, 1.0, 10.0, 100.0):
        layer = Architecture(heads=2, sigma_q=score_scale)
        with jax.enable_x64(True):
            p = Law(layer, K).sample_scores(KEY, 100)
            double = np.asarray(Law(layer, K).Sigma(p))
        single = Law(layer, K).Sigma(np.asarray(p, np.float32))
        assert single.dtype == np.float32
        assert np.abs(single - double).max() < np.finfo(np.float32).eps * (8 + np.abs(p).max())


def test_dtype_follows_the_kernel():
    assert Law(LAYERS["limit"], K).sample(KEY, 2).dtype == np.float32  # JAX's default when x64 is off
    with jax.enable_x64(True):
        assert Law(LAYERS["limit"], K).sample(KEY, 2).dtype == np.float64
        assert Law(LAYERS["limit"], K.astype(np.float32)).sample(KEY, 2).dtype == np.float32


def test_equal_laws_compile_once_for_any_number_of_networks():
    stages = (sampling.gaussian_scores, sampling.factors_of, sampling.draw_outputs)
    for stage in stages:
        stage.clear_cache()
    for q, kernel, networks in [(1.0, K, 10), (2.0, kernels.rbf(4, 0.3), 20_000)]:
        Law(Architecture(heads=2, sigma_q=q), kernel).sample(KEY, networks, 3)
    assert [stage._cache_size() for stage in stages] == [1, 1, 1]
    Law(Architecture(heads=3), K).sample(KEY, 10, 3)
    assert [stage._cache_size() for stage in stages] == [2, 2, 2]


def test_memory_does_not_grow_with_the_number_of_draws():
    """Peak memory of a fresh process that streams 20,000 networks, then 200,000; and one network of a million coordinates."""
    code = """
import jax, resource, hierattn as ha
law, key = ha.Law(ha.Architecture(heads=2), ha.kernels.rbf(4, 1.5)), jax.random.key(0)
peaks = []
for networks in (20_000, 200_000):
    for part in law.stream(key, networks, 16):
        part.y.block_until_ready()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
assert law.sample(key, 1, 1_000_000).shape == (1, 4, 1_000_000)
peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    few, many, long = map(int, out.split())
    assert many < 1.1 * few
    assert long < many + 200_000  # kB; the outputs and their normals are 50 MB


def test_laws_are_differentiable():
    @jax.jit
    def loss(q):
        law = Law(Architecture(heads=2).with_scales(q, 1.0), K)
        return jnp.sum(law.sample(KEY, 3, 2) ** 2)

    q, step = 1.0, 1e-5
    with jax.enable_x64(True):
        slope = (loss(q + step) - loss(q - step)) / (2 * step)
        np.testing.assert_allclose(jax.grad(loss)(q), slope, rtol=1e-6)


def test_one_kernel_per_network():
    """A batch of kernels: network m has the law of kernel m."""
    kernels_ = np.stack([kernels.rbf(3, 1.0), kernels.equicorrelated(3, 0.2)])
    batched = Law.from_factors(Architecture(heads=2), kernels.factor(kernels_))
    E = np.random.default_rng(0).normal(size=(2, 2, 3, 3)).astype(np.float32)
    p = np.asarray(jax.jit(batched.scores_from)(E))
    Sigma = np.asarray(jax.jit(batched.Sigma)(p))
    of_one = jax.jit(lambda one, E, p: (one.scores_from(E), one.Sigma(p)))
    for m in range(2):
        own_p, own_Sigma = of_one(Law(Architecture(heads=2), kernels_[m]), E[m], p[m])
        np.testing.assert_allclose(p[m], own_p, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(Sigma[m], own_Sigma, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda law: law.sample(0, 10), "rng_key: expected a JAX random key, got 0"),
        (lambda law: law.sample(KEY, 0), "networks: expected a positive whole number, got 0"),
        (lambda law: law.sample(KEY, 10, 1.5), "coordinates: expected a positive whole number, got 1.5"),
        (lambda law: next(law.stream(KEY, -1)), "networks: expected a positive whole number, got -1"),
        (lambda law: law.sample(jnp.zeros(2), 10), "rng_key: expected a JAX random key"),
        (lambda law: law.sample(jax.random.split(KEY, 3), 10), "rng_key: expected a JAX random key"),
        (lambda law: law.sample_given(KEY, np.zeros((2, 4, 4))), "p: expected scores (network, head, query, key)"),
        (lambda law: law.Sigma(np.zeros((3, 4, 4))), "p: expected shape (..., 2, 4, 4), got (3, 4, 4)"),
        (lambda law: law.kappa_prime(np.zeros((7, 1, 4, 4))), "p: expected shape (..., 2, 4, 4), got (7, 1, 4, 4)"),
        (lambda law: law.moments(seed=-1) and Law(law.layer, K).moments(seed=-1), "seed: expected a whole number"),
        (lambda law: law.moments(True), "token: expected a whole number"),
        (lambda law: Law(law.layer, np.stack([K, K])), "K: expected one kernel (tokens, tokens), got shape (2, 4, 4)"),
        (lambda law: jax.jit(lambda K: Law(law.layer, K).K)(K), "inside jit make the law with Law.from_factors"),
        (lambda law: law.factor(np.zeros((2, 4, 4)), np.zeros((2, 4, 4))), "D: expected no value factors"),
        (lambda law: law.moments(4), "token: expected a whole number from 0 to 3, got 4"),
        (lambda law: Law(law.layer, [[1.0, 2.0], [2.0, 1.0]]), "K: expected a positive semidefinite matrix"),
        (lambda law: Law(law.layer, K, np.ones((2, 3))), "query_kernel: expected a real square matrix"),
        (lambda law: Law(Architecture(bias=np.zeros((3, 3))), K), "bias: expected shape (4, 4)"),
        (lambda law: Law(Architecture(mask=np.ones((3, 3), bool)), K), "mask: expected shape (4, 4)"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(InputError) as raised:
        call(Law(Architecture(heads=2), K))
    assert words in str(raised.value)


def test_scores_may_be_whole_numbers():
    law = Law(Architecture(heads=2, sigma_q=0.5), K)
    p = np.arange(32).reshape(2, 4, 4) % 3
    np.testing.assert_array_equal(law.Sigma(p), law.Sigma(p.astype(np.float32)))
    np.testing.assert_array_equal(law.kappa_prime(p), law.kappa_prime(p.astype(np.float32)))


def test_too_many_draws_are_refused_before_they_are_made():
    with pytest.raises(UnsafeInputError, match=r"expected at most .* bytes, got .*; use stream"):
        Law(Architecture(), K).sample(KEY, 10**12)


def test_says_what_it_is():
    expected = "Law(heads=2, head_dim=8, queries=4, keys=4, scaling='linear')"
    assert repr(Law(LAYERS["linear"], K)) == expected
