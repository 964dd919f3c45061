"""One kernel for each network: is each that of its own network? By the law's definition in NumPy, kernels of unit inputs."""

import numpy as np
import pytest

from hierattn import Architecture, Law, Observations, diagnose, kernels
from hierattn.diagnostics import reference, statistics
from hierattn.diagnostics.record import of_tests
from tests.diagnostics import drawn
from tests.statistics import within

M, C, TOKENS = 400, 16, 4
GIVEN = {"score_scale": 1.6, "value_scale": 1.0}
LAYER = Architecture(sigma_q=1.6)


def networks(seed, number=M, width=8):
    """Outputs, and the kernel of each network's inputs, which are random and of length one."""
    X = np.random.default_rng(seed).normal(size=(number, TOKENS, width))
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    K = X @ X.swapaxes(1, 2)
    return np.concatenate([drawn.law(1000 * seed + m, 1, C, k, LAYER) for m, k in enumerate(K)]), K


def diagnosed(y, K):
    return diagnose(Observations(y, K, heads=1), **GIVEN)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_kernels_in_another_order_are_noticed_and_those_in_the_right_one_are_not(seed):
    y, K = networks(seed)
    right = diagnosed(y, K)
    assert (right.consistent, right.codes) == (True, [])
    assert right.powers["pairing"] > 0.99
    record = of_tests(right)
    assert within(record["pairing_observed"], record["pairing_law"], record["pairing_law_error"])
    assert within(record["pairing_law"], 1, record["pairing_law_error"])
    reversed_too = [K[::-1]] if seed else []  # by `make verify`; below a third of the networks is reversed every time
    for wrong in (K[np.random.default_rng(seed).permutation(M)], *reversed_too):
        found = diagnosed(y, wrong)
        assert (found.consistent, found.codes) == (False, ["pairing"])
        assert abs(found.reasons[0]["numbers"]["slope"]) < 0.4
        record = of_tests(found)
        assert record["p_pairing"] < record["level"] < record["p_kernel"]
        assert found.next_steps[0].startswith("is each kernel that of its own network?")


def test_some_kernels_in_another_order():
    y, K = networks(3)
    K[: M // 3] = K[: M // 3][::-1]
    found = diagnosed(y, K)
    assert (found.consistent, found.codes) == (False, ["pairing"])
    assert "only in part" in found.reasons[0]["message"]


def test_few_networks_cannot_show_it():
    y, K = networks(4, 8)
    found = diagnosed(y, K)
    assert found.powers["pairing"] < 0.9
    said = [reason["message"] for reason in found.reasons if reason["code"] == "low_power"]
    assert any("8 networks would have shown kernels given to the wrong networks with probability" in each for each in said)


def test_there_is_no_such_test_where_it_does_not_matter_who_has_which():
    """One kernel for all, or kernels of wide inputs, which predict the same to a few per cent."""
    found = diagnose(Observations(drawn.law(0, 40, C), np.eye(4), heads=1), **GIVEN)
    assert "pairing" not in found.examination.p_values
    assert "pairing" not in found.powers
    assert of_tests(found)["p_pairing"] is None
    y, K = networks(5, 40, width=4_000)
    alike = diagnosed(y, K)
    assert "pairing" not in alike.powers
    assert "pairing" not in alike.examination.p_values


def test_data_sets_keep_the_kernel_of_each_network():
    """Two kernels in turn, one of large outputs: network m is drawn from those with kernel m; their variance is that of new
    ones. 4,000 data sets see the mean to 0.1 and the variance to 2 %."""
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(6, 2, 1)) + np.array([0.0, 100.0])[:, None]
    means = statistics.replicates(pool.reshape(12, 1), 2, 4000, rng, kernels=2)
    assert abs(means.mean() - pool.mean()) < 0.1
    expected = pool[..., 0].var(axis=0).sum() / 4 * 7 / 5
    assert means.var() == pytest.approx(expected, rel=0.1)
    assert statistics.replicates(pool.reshape(12, 1), 2, 4000, rng).var() > 100


def test_rivals_keep_what_a_kernel_says():
    """Gaussian networks, and those whose coordinates share nothing, follow their own kernels; shuffled ones do not."""
    _, K = networks(6, 100)
    law = Law.from_factors(LAYER, kernels.factor(K))
    found = reference.simulate(law, C, 3200, 0)
    slope = {name: statistics.statistics(found.among(name).mean(axis=0), found.view).pairing for name in ("law", *found.rivals)}
    for name, expected in {"law": 1.0, "gaussian": 1.0, "own": 1.0, "pairing": 0.0}.items():
        assert slope[name] == pytest.approx(expected, abs=0.15), name
    spread = {name: statistics.statistics(found.among(name).mean(axis=0), found.view).spread for name in slope}
    assert spread["gaussian"] < 0.5 * spread["law"]
    assert spread["pairing"] == pytest.approx(spread["law"], rel=0.05)
