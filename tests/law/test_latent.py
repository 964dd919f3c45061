"""Latent attention: the law against networks drawn weight by weight, here in NumPy and by the package; mutants; limits."""

import math

import jax
import numpy as np
import pytest

import hierattn as ha
from hierattn import Architecture, InputError, LatentAttention, LatentLaw, Law, kernels
from hierattn.numerics import rqmc
from tests import explicit
from tests.fields import _alike as alike
from tests.statistics import same_means
from tests.variants import variants

NETWORKS, KEY, WIDTH = 2**14, jax.random.key(0), 6
K = kernels.from_inputs(np.random.default_rng(0).normal(size=(4, 6)) * [[0.6], [1.0], [1.5], [2.0]])
X = explicit.inputs(np.linalg.cholesky(K), WIDTH)
FULL = LatentAttention(
    heads=2,
    head_dim=3,
    value_dim=5,
    key_rank=3,
    query_rank=5,
    rotary=np.array([1.0, 0.3]),
    sigma_q=2.0,
    sigma_r=0.7,
    sigma_v=1.5,
    mask="causal",
)
LAYERS = {
    "all of it": FULL,
    "queries of the inputs": FULL.replace(query_rank=None, mask=None),
    "no rotary part": FULL.replace(rotary=None),
    "eps": FULL.replace(eps=0.5, sigma_key_latent=0.8, sigma_query_latent=2.0),
}
MUTANTS = {
    "latent's rank as infinite": (FULL, FULL.replace(key_rank=math.inf)),
    "queries' rank as infinite": (FULL.replace(query_rank=1), FULL.replace(query_rank=math.inf)),
    "rotary part left out": (FULL, FULL.replace(rotary=None)),
    "shared key left in": (FULL.replace(sigma_r=3.0), FULL.replace(sigma_r=0.01)),
    "eps left out": (LATENT := FULL.replace(eps=0.5), LATENT.replace(eps=0.0)),
}


def normed(c, eps):
    return c / np.sqrt(np.mean(c**2, axis=-1, keepdims=True) + eps)


def drawn(rng, d, networks):
    """Sigma of explicit networks given all but W^O, as DeepSeek's own code computes a layer, head by head."""
    s, n = X.shape

    def weights(sigma, fan_in, fan_out):
        return rng.normal(size=(networks, fan_in, fan_out)) * sigma / np.sqrt(fan_in)

    c = normed(X @ weights(d.sigma_key_latent, n, d.key_rank), d.eps)
    source = np.broadcast_to(X, (networks, s, n))
    if d.query_rank is not None:
        source = normed(X @ weights(d.sigma_query_latent, n, d.query_rank), d.eps)
    fan_in, n_R = source.shape[-1], 0 if d.rotary is None else 2 * len(d.rotary)
    k_R = explicit.turn(X @ weights(d.sigma_r, n, n_R), d.rotary) if n_R else 0
    Sigma = np.zeros((networks, s, s))
    for _ in range(d.heads):
        q, k = source @ weights(d.sigma_q, fan_in, d.head_dim + n_R), c @ weights(d.sigma_k, d.key_rank, d.head_dim)
        if n_R:
            q = np.concatenate([q[..., : d.head_dim], explicit.turn(q[..., d.head_dim :], d.rotary)], axis=-1)
            k = np.concatenate([k, k_R], axis=-1)
        p = q @ k.swapaxes(-1, -2) / np.sqrt(d.head_dim + n_R)
        B = explicit.attention(d.values.replace(heads=1), p) @ c @ weights(d.sigma_v, d.key_rank, d.value_dim)
        Sigma += d.sigma_o**2 * B @ B.swapaxes(-1, -2) / (d.heads * d.value_dim)
    return Sigma


@pytest.mark.parametrize("name", variants(LAYERS, ["all of it"]))
def test_the_law_is_that_of_explicit_networks(name):
    """16,384 networks a side: Sigma with its logarithms, then outputs of the package's own explicit networks."""
    layer = LAYERS[name]
    law, truth = LatentLaw(layer, K), drawn(np.random.default_rng(1), layer, NETWORKS)
    assert alike(np.asarray(law.sample_Sigma(KEY, NETWORKS), float), truth)
    y = np.asarray(ha.network.simulate(jax.random.key(1), layer, X, NETWORKS, 2).y, float)
    assert same_means(np.einsum("mic,mjc->mij", y, y) / 2, truth)
    assert same_means(np.prod(y**2, axis=2), np.einsum("mii->mi", truth) ** 2)
    y = np.asarray(law.sample(KEY, NETWORKS, 2), float)
    assert same_means(np.einsum("mic,mjc->mij", y, y) / 2, truth)


@pytest.mark.parametrize("name", variants(MUTANTS, ["latent's rank as infinite", "rotary part left out"]))
def test_mutants_are_seen(name):
    layer, mutant = MUTANTS[name]
    truth = drawn(np.random.default_rng(1), layer, NETWORKS)
    assert alike(np.asarray(LatentLaw(layer, K).sample_Sigma(KEY, NETWORKS), float), truth)
    assert not alike(np.asarray(LatentLaw(mutant, K).sample_Sigma(KEY, NETWORKS), float), truth)


@pytest.mark.slow
def test_moments_and_marginal_are_those_of_the_draws():
    law, truth = LatentLaw(FULL, K), drawn(np.random.default_rng(2), FULL, NETWORKS)
    v, found = truth[:, 2, 2], law.moments(2)
    parts = v.reshape(64, -1)
    kurtosis = 3 * parts.var(axis=1) / parts.mean(axis=1) ** 2
    assert abs(found.variance - v.mean()) < found.variance_error + 4 * v.std() / len(v) ** 0.5
    error = found.excess_kurtosis_error + 4 * kurtosis.std() / 8
    assert abs(found.excess_kurtosis - 3 * v.var() / v.mean() ** 2) < error
    joint = law.joint_moments([2, 0])
    assert abs(joint.mean[0, 0] - found.variance) < joint.mean_error[0, 0] + found.variance_error
    assert joint.covariance.shape == (2, 2, 2, 2)
    mean, error = law.infinite_heads()
    assert np.all(np.abs(mean - truth.mean(axis=0)) < error + 4 * truth.std(axis=0) / len(v) ** 0.5)


@pytest.mark.slow
def test_latents_of_infinite_rank_leave_the_plain_law_of_normed_inputs(monkeypatch):
    """Without a rotary part: scores and values of inputs of length one, at finite head_dim; moments within errors."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)
    layer = FULL.replace(key_rank=math.inf, query_rank=math.inf, rotary=None, value_dim=3)
    plain = Architecture(heads=2, head_dim=3, sigma_q=2.0, sigma_v=1.5, mask="causal")
    found, expected = LatentLaw(layer, K).moments(2), Law(plain, kernels.normed(K)).moments(2)
    assert abs(found.variance - expected.variance) < found.variance_error + expected.variance_error
    errors = found.excess_kurtosis_error + expected.excess_kurtosis_error
    assert abs(found.excess_kurtosis - expected.excess_kurtosis) < errors


def test_bad_arguments_are_named():
    for change, words in (
        ({"key_rank": 0}, "key_rank: expected a positive whole number, got 0"),
        ({"query_rank": 1.5}, "query_rank: expected a positive whole number, got 1.5"),
        ({"head_dim": None}, "head_dim: expected a positive whole number, got None"),
        ({"value_dim": 0}, "value_dim: expected a positive whole number, got 0"),
        ({"eps": -1.0}, "eps: expected one number of at least 0"),
        ({"sigma_r": -1.0}, "sigma_r: expected numbers that are 0 or between"),
    ):
        with pytest.raises(InputError, match=words.replace("(", ".").replace(")", ".")):
            FULL.replace(**change)
    with pytest.raises(InputError, match="eps: expected a positive number where a token has length zero"):
        LatentLaw(FULL, np.diag([1.0, 0.0, 1.0, 1.0]))
    with pytest.raises(InputError, match="key_rank: expected latents of finite dimension"):
        ha.network.simulate(KEY, FULL.replace(key_rank=math.inf), X, 2)
