"""Outputs held against a law: every statistic, its test, and what simulated networks of the law lead one to expect."""

from typing import NamedTuple

import numpy as np

from hierattn.diagnostics import reference, statistics, testing
from hierattn.diagnostics.statistics import Statistics
from hierattn.diagnostics.subject import Subject


class Examination(NamedTuple):
    """Outputs held against a law.

    seen, drawn          statistics of the outputs, and of data sets of the law
    p_values, corrected  of every test, and corrected for their number
    tests                the tests' own numbers
    """

    reference: reference.Reference
    seen: Statistics
    drawn: Statistics
    at: testing.Expected
    p_values: dict[str, float]
    corrected: dict[str, float]
    tests: testing.Tests

    @property
    def refused(self) -> set[str]:
        """Tests that refuse the law."""
        return {name for name, p in self.corrected.items() if p < testing.LEVEL}


def examine(subject: Subject, y: np.ndarray, seed: int) -> Examination:
    """All tests of a law, corrected for their number."""
    assert subject.law is not None
    rng, (M, _, C) = np.random.default_rng(seed), y.shape
    pools = reference.simulate(subject.law, C, reference.pool_size(subject.law, M, C), seed)
    view = pools.view
    seen = statistics.statistics(statistics.features(y, view).mean(axis=0), view)
    drawn, gaussian = (data_sets(pool, view, M, testing.REPLICATES, rng) for pool in (pools.law, pools.gaussian))
    at = testing.expected(pools, drawn, subject.free)
    found, null = testing.tests(at, seen), testing.tests(at, drawn)
    p = {name: float(value) for name, value in testing.p_values(found, null).items()}
    evenness = float(testing.ranks(-seen.evenness, -gaussian.evenness, two_sided=False)) if C > 1 and M > 1 else 1.0
    corrected = testing.holm(p | {"normalised": evenness})
    return Examination(pools, seen, drawn, at, p | {"normalised": evenness}, corrected, found)


def data_sets(pool: np.ndarray, view: statistics.View, networks: int, number: int, rng: np.random.Generator) -> Statistics:
    """Statistics of data sets drawn from a pool of simulated networks."""
    return statistics.statistics(statistics.replicates(pool, networks, number, rng), view)
