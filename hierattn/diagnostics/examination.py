"""Outputs held against a law: every statistic, its test, and what simulated networks of the law lead one to expect."""

from typing import NamedTuple

import numpy as np

from hierattn.diagnostics import reference, statistics, testing
from hierattn.diagnostics.departures.registry import TESTS
from hierattn.diagnostics.statistics import Statistics
from hierattn.diagnostics.subject import Subject


class Examination(NamedTuple):
    """Outputs held against a law.

    - seen, drawn: statistics of the outputs, and of data sets of the law
    - p_values, corrected: of every test, and corrected for their number
    - tests: the tests' own numbers
    """

    reference: reference.Reference
    seen: Statistics
    drawn: Statistics
    at: testing.Expected
    p_values: dict[str, float]
    corrected: dict[str, float]
    tests: dict[str, float]

    @property
    def refused(self) -> set[str]:
        """Names of tests that refuse the law."""
        return {name for name, p in self.corrected.items() if p < testing.LEVEL}


def examine(subject: Subject, y: np.ndarray, seed: int) -> Examination:
    """All tests of a law, corrected for their number."""
    assert subject.law is not None
    rng, (M, _, C) = np.random.default_rng(seed), y.shape
    law = reference.of_first(subject.law, M)
    pools = reference.simulate(law, C, reference.pool_size(law, M, C), seed)
    seen = statistics.statistics(statistics.features(y, pools.view).mean(axis=0), pools.view)
    names = dict.fromkeys(("law", *(test.among for test in TESTS)))
    nulls = {name: data_sets(pools.among(name), pools.view, M, testing.REPLICATES, rng) for name in names}
    at = testing.expected(pools, nulls["law"], subject.free)
    numbers: dict[str, float] = {}
    p: dict[str, float] = {}
    for name, null in nulls.items():
        found = testing.numbers(at, seen, name)
        numbers |= {test: float(x) for test, x in found.items()}
        p |= {test: float(x) for test, x in testing.p_values(found, testing.numbers(at, null, name)).items()}
    return Examination(pools, seen, nulls["law"], at, p, testing.holm(p), numbers)


def data_sets(pool: np.ndarray, view: statistics.View, networks: int, number: int, rng: np.random.Generator) -> Statistics:
    """Statistics of data sets drawn from a pool of simulated networks."""
    return statistics.statistics(statistics.replicates(pool, networks, number, rng, view.kernels), view)
