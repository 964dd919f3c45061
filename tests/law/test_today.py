"""Layers of today's models: mutants of each step that explicit networks reject, and limits in which a step does nothing."""

import jax
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from hierattn.numerics import rqmc
from tests import explicit
from tests.fields import _alike as alike
from tests.variants import variants

NETWORKS, KEY = 2**15, jax.random.key(0)
K = kernels.from_inputs(np.random.default_rng(0).normal(size=(4, 6)) * [[0.6], [1.0], [1.5], [2.0]])
SHARP = Architecture(heads=2, sigma_q=2.0)
NORMED = Architecture(heads=2, qk_norm="rms", qk_gain=2.0)
PAIRS = {  # a layer, and what somebody might have taken it for
    "norm left out": (NORMED, SHARP),
    "norm left out, head_dim": (NORMED.replace(head_dim=8), SHARP.replace(head_dim=8)),
    "head_dim as infinite": (NORMED.replace(head_dim=6), NORMED),
    "mean left in": (NORMED.replace(head_dim=4, qk_norm="layer"), NORMED.replace(head_dim=4)),
    "heads normed each for itself": (NORMED.replace(head_dim=3, qk_norm="rms_all"), NORMED.replace(head_dim=3)),
    "eps left out": (NORMED.replace(qk_eps=0.3), NORMED),
    "gain 10 % off": (NORMED, NORMED.replace(qk_gain=2.2)),
    "cap left out": (SHARP.replace(cap=2.0), SHARP),
    "cap 10 % off": (SHARP.replace(cap=1.0), SHARP.replace(cap=1.1)),
    "sink left out": (SHARP.replace(sink=0.0), SHARP),
    "sinks all alike": (SHARP.replace(sink=0.0, sink_scale=1.5), SHARP.replace(sink=0.0)),
    "window one too long": (SHARP.replace(window=2, mask="causal"), SHARP.replace(window=3, mask="causal")),
    "chunk one too long": (SHARP.replace(chunk=2), SHARP.replace(chunk=3)),
}


def truth(layer):
    """Sigma of explicit networks."""
    rng = np.random.default_rng(1)
    if layer.head_dim is None:
        return explicit.limit_covariances(rng, layer, K, None, NETWORKS)
    return explicit.covariances(rng, layer, explicit.inputs(np.linalg.cholesky(K), 4), None, NETWORKS)


@pytest.mark.parametrize("name", variants(PAIRS, ["norm left out, head_dim", "cap 10 % off", "sink left out"]))
def test_the_law_is_that_of_explicit_networks_and_a_mutant_is_not(name):
    """32,768 networks a side: means of Sigma and of its logarithms, at 4.9 standard errors."""
    layer, mutant = PAIRS[name]
    expected = truth(layer)
    assert alike(np.asarray(Law(layer, K).sample_Sigma(KEY, NETWORKS), float), expected)
    assert not alike(np.asarray(Law(mutant, K).sample_Sigma(KEY, NETWORKS), float), expected)


def test_norms_that_are_one_change_nothing():
    """At infinite head_dim tokens of length one need no norm: the gain is the score_scale, draw by draw, to rounding."""
    R = kernels.normed(K)
    with jax.enable_x64(True):
        for layer in (Architecture(heads=2), Architecture(heads=2, rotary=np.array([1.0, 0.3]), mask="causal")):
            normed = Law(layer.replace(qk_norm="rms", qk_gain=1.7), R)
            plain = Law(layer.replace(sigma_q=1.7), R)
            np.testing.assert_allclose(normed.sample(KEY, 20, 3), plain.sample(KEY, 20, 3), rtol=1e-12, atol=1e-13)
            assert normed.moments(1)[:4] == pytest.approx(plain.moments(1)[:4], rel=1e-9)


@pytest.mark.parametrize("qk_norm", variants(["rms", "layer", "rms_all"], ["rms"]))
def test_wide_heads_have_the_limit(qk_norm, monkeypatch):
    """E Sigma approaches that of infinite head_dim, as 1 / head_dim: four times as wide, less than half as far."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)
    limit = Law(NORMED.replace(qk_norm=qk_norm), K).joint_moments([0, 1])
    off = []
    for head_dim in (16, 64, 4096):
        found = Law(NORMED.replace(qk_norm=qk_norm, head_dim=head_dim), K).joint_moments([0, 1])
        off.append(np.abs(found.mean - limit.mean).max())
    assert off[1] < 0.5 * off[0]
    assert off[2] < 0.02 * off[0] + 2 * limit.mean_error.max()


def test_an_eps_beside_which_nothing_matters_makes_weights_equal():
    found = Law(NORMED.replace(qk_eps=1e12, head_dim=5), K).sample_scores(KEY, 3)
    assert np.abs(found).max() < 1e-6


def test_scores_have_the_covariance_that_kappa_prime_says():
    """At infinite head_dim, normed with eps and rotary; entry by entry over 200,000 networks."""
    layer = NORMED.replace(qk_eps=0.3, sigma_k=0.7, rotary=np.array([1.0, 0.3]), sink=0.0, sink_scale=0.5, heads=1)
    law = Law(layer, K)
    p = np.asarray(law.sample_scores(KEY, 200_000), float).reshape(-1, 16)
    expected = np.asarray(law.kappa_prime(np.eye(16).reshape(16, 1, 4, 4))).reshape(16, 16)
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / len(p))
    assert np.all(np.abs(p.T @ p / len(p) - expected) < 5 * error)
