"""Statistics and tests: identities, levels, and what must be rejected."""

import numpy as np
import pytest
from scipy import stats

from hierattn import Architecture, Law
from hierattn.diagnostics import reference, statistics, testing
from hierattn.diagnostics.comparison import tails
from hierattn.inference.methods.moment_table import Directions
from tests.diagnostics import drawn
from tests.statistics import mean_agrees, within

VIEW = statistics.View(Directions(np.eye(2), np.array([-1.0, 1.0])), np.ones(2), np.full(4, 0.25), 3)


def test_statistics_are_what_their_definitions_say():
    """By loops over networks, coordinates and pairs of them."""
    y = np.random.default_rng(0).normal(size=(5, 2, 3))
    found = statistics.statistics(statistics.features(y, VIEW).mean(axis=0), VIEW)
    pairs = [
        np.mean([y[m, i, c] ** 2 * y[m, i, d] ** 2 for m in range(5) for c in range(3) for d in range(3) if c != d])
        for i in (0, 1)
    ]
    second, fourth = (y**2).mean(axis=(0, 2)), (y**4).mean(axis=(0, 2))
    assert found.size == pytest.approx(np.log(second.mean()))
    assert found.spread == pytest.approx(np.mean(pairs / second**2) - 1)
    assert found.within == pytest.approx(np.mean(fourth / (3 * np.array(pairs))) - 1)
    assert found.evenness == pytest.approx(np.mean((y**2).mean(axis=2).var(axis=0) / second**2) * 3 / 2)
    S = np.einsum("mic,mjc->ij", y, y) / 15
    np.testing.assert_allclose(found.shape, S[np.triu_indices(2)] / second.mean())


def test_spread_and_within_of_the_law_are_its_kurtosis_and_zero():
    """3 x spread of single tokens is the excess kurtosis (THEORY section 4); 20,000 networks see both to 2 %."""
    y = drawn.law(0, 20_000, 8)
    view = statistics.View(Directions(np.eye(4), np.zeros(4)), np.ones(4), np.repeat([0.25, 0], 4), 8)
    parts = [statistics.statistics(statistics.features(part, view).mean(axis=0), view) for part in np.split(y, 20)]
    known = Law(drawn.LAYER, np.eye(4)).moments()
    assert (known.variance, known.excess_kurtosis) == pytest.approx((drawn.VARIANCE, drawn.KURTOSIS), abs=1e-6)
    assert mean_agrees([3 * part.spread for part in parts], drawn.KURTOSIS)
    assert mean_agrees([part.within for part in parts], 0.0)
    own = drawn.own_scores(0, 20_000, 8)
    mutant = [statistics.statistics(statistics.features(part, view).mean(axis=0), view) for part in np.split(own, 20)]
    assert mean_agrees([part.spread for part in mutant], 0.0)
    assert not mean_agrees([part.within for part in mutant], 0.0)


def test_pools_are_networks_of_the_law_and_of_its_rivals():
    law = Law(Architecture(heads=2, sigma_q=1.6), np.eye(4))
    found = reference.simulate(law, 8, 2**13, 0)
    g = len(found.view.weights)
    u = slice(4, g)  # whitened directions
    for pool in map(found.among, ("law", "gaussian", "own")):
        assert within(pool[:, u].mean(axis=0), 1.0, pool[:, u].std(axis=0) / np.sqrt(len(pool)) + 1e-6)
    spread = {
        name: statistics.statistics(found.among(name).mean(axis=0), found.view).spread for name in ("law", "gaussian", "own")
    }
    assert spread["law"] > 0.05
    assert abs(spread["gaussian"]) < 0.01
    assert abs(spread["own"]) < 0.01


def test_p_values_of_the_law_are_uniform_and_those_of_mutants_small():
    """Ranks of 300 fresh data sets of 20 networks, by another simulator; a score_scale off by 30 % moves them."""
    law = Law(drawn.LAYER, np.eye(4))
    pools = reference.simulate(law, 16, 2**14, 0)
    rng = np.random.default_rng(1)

    def statistics_of(pool):
        return statistics.statistics(statistics.replicates(pool, 20, 1499, rng), pools.view)

    null = statistics_of(pools.law)
    y = drawn.law(5, 300 * 20, 16)
    fresh = statistics.features(y, pools.view).reshape(300, 20, -1).mean(axis=1)
    wrong = drawn.law(5, 300 * 20, 16, layer=Architecture(sigma_q=0.7 * 1.6))
    mutant = statistics.features(wrong, pools.view).reshape(300, 20, -1).mean(axis=1)
    for free in (frozenset(), frozenset({"score_scale", "value_scale"})):
        at = testing.expected(pools, null, free)
        p = testing.p_values(testing.numbers(at, statistics.statistics(fresh, pools.view)), testing.numbers(at, null))
        assert set(p) == {"kernel", "spread", "within"} | (set() if free else {"scale", "score_scale"})
        for name, values in p.items():
            assert stats.kstest(values, "uniform").pvalue > 1e-4, name
        moved = testing.p_values(testing.numbers(at, statistics.statistics(mutant, pools.view)), testing.numbers(at, null))
        if free:
            assert all(stats.kstest(values, "uniform").pvalue > 1e-9 for values in moved.values())  # taken off
        else:
            assert np.median(moved["score_scale"]) < 0.05


def test_holm_is_holm():
    found = testing.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_shuffling_finds_what_is_shared_and_nothing_else():
    """Twenty sets of independent heavy-tailed numbers: exact whatever the tails."""
    rng = np.random.default_rng(0)
    view = statistics.View(Directions(np.eye(4), np.zeros(4)), np.ones(4), np.full(8, 1 / 8), 16)
    assert testing.sharing(drawn.law(0, 40, 16), view, rng) < 0.01
    small = statistics.View(Directions(np.eye(2), np.zeros(2)), np.ones(2), np.full(4, 1 / 4), 5)
    heavy = [testing.sharing(rng.standard_t(3, size=(8, 2, 5)), small, rng) for _ in range(20)]
    assert stats.kstest(heavy, "uniform").pvalue > 1e-3


def test_networks_are_the_units_and_pooling_coordinates_lies():
    """90 % intervals for the variance in 200 data sets of the law, 40 networks of 64 coordinates each: over networks they cover
    (180 +- 4 times, fewer for a bootstrap of 40), over coordinates taken for independent they do not."""
    y = drawn.law(3, 200 * 40, 64)[:, 0].reshape(200, 40, 64)
    covered = {"networks": 0, "coordinates": 0}
    for square in y**2:
        drawn_again = tails.bootstrap(np.mean, square.mean(axis=1), 0)
        low, high = np.quantile(drawn_again, [0.05, 0.95])
        covered["networks"] += bool(low <= drawn.VARIANCE <= high)
        error = square.std() / np.sqrt(square.size)
        covered["coordinates"] += bool(abs(square.mean() - drawn.VARIANCE) < 1.645 * error)
    assert covered["networks"] >= 160
    assert covered["coordinates"] < 140
