from functools import cache

import jax
import numpy as np
import pytest

from hierattn import Architecture, InputError, Law, kernels, rotary_frequencies
from hierattn.law import joint_moments
from hierattn.numerics import rqmc
from tests.statistics import SIGMAS


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """Fewer points: larger errors, stated as such."""
    monkeypatch.setattr(rqmc, "BUDGET", 2**22)


K = kernels.from_inputs(np.random.default_rng(0).normal(size=(3, 5)))
LAWS = {
    "limit": Law(Architecture(heads=2, sigma_v=[1.0, 2.0], mask="causal"), K),
    "rotary": Law(Architecture(heads=2, rotary=rotary_frequencies(4)), K),
    "finite": Law(Architecture(heads=2, head_dim=3), K),
    "grouped": Law(Architecture(heads=4, head_dim=2, key_value_heads=2), K),
}


@cache
def of_all_tokens(name):
    """Joint moments of a law, which several tests look at."""
    return LAWS[name].joint_moments()


@pytest.mark.parametrize("name", LAWS)
def test_against_brute_force(name):
    """Mean and covariance of drawn Sigmas, 40,000 networks, entry by entry; forgetting the group or n_H is seen."""
    law, joint = LAWS[name], of_all_tokens(name)
    Sigma = np.asarray(law.sample_Sigma(jax.random.key(1), 40_000), float)
    centred = Sigma - Sigma.mean(axis=0)
    products = np.einsum("nij,nkl->nijkl", centred, centred)
    root = np.sqrt(len(Sigma))
    assert np.all(np.abs(joint.mean - Sigma.mean(axis=0)) < SIGMAS * Sigma.std(axis=0) / root + joint.mean_error + 1e-6)
    error = SIGMAS * products.std(axis=0) / root + joint.covariance_error + 1e-9
    assert np.all(np.abs(joint.covariance - products.mean(axis=0)) < error)
    if law.layer.head_dim is not None:
        ungrouped = Law(law.layer.replace(head_dim=None, key_value_heads=None), law.K).joint_moments()
        assert not np.all(np.abs(ungrouped.covariance - products.mean(axis=0)) < error)


def test_diagonal_is_the_one_token_law():
    law = LAWS["finite"]
    joint = of_all_tokens("finite")
    for i in range(3):
        one = law.moments(i)
        assert abs(joint.mean[i, i] - one.variance) < joint.mean_error[i, i] + one.variance_error
        kurtosis = 3 * joint.covariance[i, i, i, i] / joint.mean[i, i] ** 2
        assert abs(kurtosis - one.excess_kurtosis) < 2e-3 * kurtosis


def test_some_tokens_are_a_part_of_all():
    law = LAWS["limit"]
    some, whole = joint_moments.of_tokens(law, tokens=[2, 0]), of_all_tokens("limit")
    np.testing.assert_allclose(some.mean, whole.mean[np.ix_([2, 0], [2, 0])], atol=2e-3)


@pytest.mark.parametrize("head_dim", [None, 4])
def test_infinite_heads_is_the_mean_for_any_number_of_heads(head_dim):
    """The Gaussian limit shares its second moments with drawn Sigmas at H = 8; at a finite head_dim it does not."""
    covariance, error = Law(Architecture(heads=8, head_dim=head_dim, sigma_q=2.0), K).infinite_heads()
    drawn = Law(Architecture(heads=8, sigma_q=2.0), K).sample_Sigma(jax.random.key(2), 50_000)
    assert same_as_mean(covariance, error, np.asarray(drawn, float))
    narrow = Law(Architecture(heads=8, head_dim=2, sigma_q=2.0), K).sample_Sigma(jax.random.key(2), 50_000)
    assert not same_as_mean(covariance, error, np.asarray(narrow, float))


def same_as_mean(value, error, x):
    return np.all(np.abs(value - x.mean(axis=0)) < SIGMAS * x.std(axis=0) / np.sqrt(len(x)) + error)


def test_linear_scaling_is_attention_without_scores():
    np.testing.assert_allclose(Law(Architecture(), K).linear_scaling(), np.full((3, 3), K.mean()), rtol=1e-6)
    bias = np.random.default_rng(1).normal(size=(3, 3))
    A = np.exp(bias) / np.exp(bias).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(Law(Architecture(bias=bias, sigma_o=2.0), K).linear_scaling(), 4 * A @ K @ A.T, rtol=1e-5)
    sampled = Law(Architecture(scaling="linear"), K).sample(jax.random.key(0), 5, 2)
    np.testing.assert_allclose(sampled - sampled[:, :1], 0, atol=1e-6)


def test_too_many_tokens_are_refused():
    with pytest.raises(InputError, match="tokens: expected at most 32 tokens"):
        Law(Architecture(), np.eye(33)).joint_moments()
    with pytest.raises(InputError, match="tokens: expected whole numbers from 0 to 2"):
        LAWS["limit"].joint_moments(tokens=[3])
    assert Law(Architecture(), np.eye(33)).infinite_heads()[0].shape == (33, 33)
