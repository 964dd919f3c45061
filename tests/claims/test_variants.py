"""THEORY sections 6 and 7: finite head dimension and architectural variants against networks drawn weight by weight.

The explicit networks have inputs with X X' / n = K exactly, so that the law at finite head_dim is exact, not a limit.
"""

import jax
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels, rotary_frequencies, sequence_mask
from hierattn.numerics import rqmc
from tests import explicit
from tests.statistics import mean_agrees, same_joint_law, same_second_moments
from tests.variants import variants

K = kernels.from_inputs(np.random.default_rng(0).normal(size=(4, 5)))
BIAS = -0.5 * np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
LAYERS = {
    "plain": Architecture(heads=2, head_dim=5, sigma_q=1.5),
    "narrower than the tokens": Architecture(heads=2, head_dim=2, sigma_q=1.5),
    "causal": Architecture(heads=2, head_dim=4, mask="causal", sigma_q=1.5),
    "bias": Architecture(heads=2, head_dim=4, bias=np.stack([BIAS, 2 * BIAS]), sigma_q=1.5),
    "rotary": Architecture(heads=2, head_dim=4, rotary=rotary_frequencies(4), sigma_q=1.5),
    "linear": Architecture(heads=2, head_dim=4, scaling="linear", sigma_q=3.0),
    "grouped": Architecture(heads=4, head_dim=2, key_value_heads=1, sigma_q=2.0),
    "unequal": Architecture(heads=2, head_dim=4, sigma_q=[0.5, 2.5], sigma_o=[2.0, 1.0]),
    "identity": Architecture(heads=2, head_dim=4, score_function="identity"),
    "sequences": Architecture(heads=2, head_dim=4, mask=sequence_mask([2, 2]), sigma_q=1.5),
    "normed": Architecture(heads=2, head_dim=6, qk_norm="rms"),
    "normed, mean taken off": Architecture(heads=2, head_dim=3, qk_norm="layer", qk_gain=2.0),
    "normed together": Architecture(heads=4, head_dim=2, key_value_heads=2, qk_norm="rms_all", qk_gain=2.0),
    "capped": Architecture(heads=2, head_dim=4, cap=1.0, sigma_q=2.0),
    "sinks": Architecture(heads=2, head_dim=4, sink=[0.5, 2.0], sigma_q=1.5),
    "sinks that vary": Architecture(heads=2, head_dim=4, sink=0.0, sink_scale=2.0, sigma_q=1.5),
    "window": Architecture(heads=2, head_dim=4, window=2, mask="causal", sigma_q=1.5),
}
MUTANTS = {
    "grouped": {"key_value_heads": None},
    "rotary": {"rotary": np.zeros(2)},
    "linear": {"scaling": "sqrt"},
    "bias": {"bias": None},
    "causal": {"mask": None},
    "sequences": {"mask": None},
    "narrower than the tokens": {"head_dim": 5},
    "normed": {"qk_norm": None},
    "normed, mean taken off": {"qk_norm": "rms"},
    "normed together": {"qk_norm": "rms"},
    "capped": {"cap": 2.0},
    "sinks": {"sink": None},
    "sinks that vary": {"sink_scale": None},
    "window": {"window": 3},
}


@pytest.mark.parametrize("name", variants(LAYERS, ["plain", "narrower"]))
def test_law_against_explicit_weights(name):
    """20,000 networks a side, two coordinates, all tokens; the mutant differs in the one thing that the case is about."""
    layer, rng = LAYERS[name], np.random.default_rng(1)
    law = Law(layer, K)
    X = explicit.inputs(np.linalg.cholesky(K), 6)
    y, p = explicit.draw(rng, layer, X, networks=20_000, coordinates=2)
    assert same_joint_law(law.sample(jax.random.key(0), 20_000, 2), y, rng)
    assert same_second_moments(law.sample_scores(jax.random.key(1), 20_000), p)
    wrong = layer.replace(**MUTANTS.get(name, {"sigma_q": 1.15 * layer.sigma_q}))
    assert not same_joint_law(Law(wrong, K).sample(jax.random.key(0), 20_000, 2), y, rng)


def test_cross_attention_against_explicit_weights():
    layer, rng = Architecture(heads=2, head_dim=4, sigma_q=1.5), np.random.default_rng(2)
    K_q = kernels.equicorrelated(2, 0.4, 1.3)
    X, X_q = explicit.inputs(np.linalg.cholesky(K), 6), explicit.inputs(np.linalg.cholesky(K_q), 6)
    y, _ = explicit.draw(rng, layer, X, X_q, networks=20_000, coordinates=2)
    assert same_joint_law(Law(layer, K, K_q).sample(jax.random.key(0), 20_000, 2), y, rng)
    mutant = Law(layer, K, kernels.equicorrelated(2, 0.8, 1.3))
    assert not same_joint_law(mutant.sample(jax.random.key(0), 20_000, 2), y, rng)


def test_infinite_head_dim_is_the_limit_of_finite_ones():
    """H x kurtosis = .2433 + 6.91 / n_H + ... for clip inputs, s = 4 (THEORY section 6)."""
    kurtosis = {n_H: Law(Architecture(head_dim=n_H), np.eye(4)).moments().excess_kurtosis for n_H in (64, 1024, 4096)}
    limit = Law(Architecture(), np.eye(4)).moments().excess_kurtosis
    assert abs(kurtosis[4096] - limit - 6.91 / 4096) < 0.02 * 6.91 / 4096
    assert abs(kurtosis[64] / limit - 1.45) < 0.01
    assert kurtosis[64] > kurtosis[1024] > kurtosis[4096] > limit


def test_rotary_covariance_against_explicit_rotations():
    """Cov(p_ij, p_kl) = K_ik K_jl rho((j - i) - (l - k)) at infinite head_dim: 40,000 drawn scores, and rotations at work.

    The second moments of scores do not depend on head_dim, so explicit rotated queries and keys must have them too.
    """
    theta, s = rotary_frequencies(6), 4
    i, j, k, m = np.indices((s, s, s, s))
    rho = np.cos(np.multiply.outer((j - i) - (m - k), theta)).mean(axis=-1)
    expected = (K[i, k] * K[j, m] * rho).reshape(s * s, s * s)
    limit = np.asarray(Law(Architecture(rotary=theta), K).sample_scores(jax.random.key(0), 40_000), float)
    layer = Architecture(head_dim=6, rotary=theta)
    X = explicit.inputs(np.linalg.cholesky(K), 6)
    _, rotated = explicit.draw(np.random.default_rng(3), layer, X, networks=40_000)
    for p in (limit.reshape(-1, s * s), rotated.reshape(-1, s * s)):
        assert mean_agrees(p[:, :, None] * p[:, None], expected)
        assert not mean_agrees(p[:, :, None] * p[:, None], np.kron(K, K))


def test_rotary_has_no_effect_on_orthogonal_tokens():
    plain, turned = (Law(Architecture(rotary=theta), np.eye(4)).moments() for theta in (None, rotary_frequencies(8)))
    assert plain == turned


def test_two_sequences_through_one_network(monkeypatch):
    """One kernel over all tokens: correlated between sequences, each alone the law of its own kernel."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)  # errors far below those of 40,000 networks
    law = Law(Architecture(heads=1, mask=sequence_mask([2, 2]), sigma_q=2.0), K)
    y = np.asarray(law.sample(jax.random.key(0), 40_000, 2), float)
    alone = Law(Architecture(heads=1, sigma_q=2.0), K[2:, 2:]).sample(jax.random.key(1), 40_000, 2)
    assert same_joint_law(y[:, 2:], alone, np.random.default_rng(0))
    between = y[:, 0, 0] ** 2 * y[:, 2, 1] ** 2
    joint = law.joint_moments()
    assert mean_agrees(between, joint.covariance[0, 0, 2, 2] + joint.mean[0, 0] * joint.mean[2, 2])
    assert not mean_agrees(y[:, 0, 0] * y[:, 2, 0], 0.0)


def test_sharing_keys_and_values_does_not_change_the_limit():
    shared, own = (Law(Architecture(heads=4, key_value_heads=g), K).moments(1) for g in (2, None))
    assert shared == own
