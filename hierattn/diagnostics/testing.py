"""Tests of a law by simulation: every p-value is a rank among data sets of simulated networks, all under one level (Holm).

Where score_scale was estimated from the same outputs, what the estimate may have wrong is taken off (Neyman's C(alpha)): with d
the derivative of shape in log score_scale and V its covariance, shape says that log score_scale is off by (d V^-1 shape) /
(d V^-1 d), and the other statistics lose what follows from that. So they do not depend on how it was estimated.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.diagnostics import statistics
from hierattn.diagnostics.departures.protocol import Held
from hierattn.diagnostics.departures.registry import TESTS
from hierattn.diagnostics.reference import STEP, Reference
from hierattn.diagnostics.statistics import Statistics, View

LEVEL = 0.01  # of all tests together
REPLICATES = 2999
INFORMATIVE = 1.0  # squared: shape determines log score_scale to within 1 standard error of 1
ROUNDING = 1e-9  # of statistics, which are ratios
SINGULAR = 1e-6  # eigenvalues of a correlation matrix that are rounding alone
SHUFFLED = 2**19  # numbers that are shuffled between networks


class Expected(NamedTuple):
    """What turns statistics into tests.

    - mean: of the statistics over data sets of the law
    - slope: their derivative in log score_scale
    - root: V with V V' the inverse covariance of shape; joint_root of shape and spread
    - free: names of scales that were estimated
    """

    mean: Statistics
    slope: Statistics
    root: Float[np.ndarray, "e r"]
    joint_root: Float[np.ndarray, "e1 r1"]
    free: frozenset[str]
    view: View

    @property
    def error_of_log_score_scale(self) -> float:
        """Standard error of log score_scale as shape and spread determine it."""
        return 1 / max(float(np.linalg.norm(np.append(self.slope.shape, self.slope.spread) @ self.joint_root)), 1e-9)


def expected(reference: Reference, drawn: Statistics, free: frozenset[str]) -> Expected:
    """From data sets drawn from the law."""
    low, high = (statistics.statistics(x.mean(axis=0), reference.view) for x in (reference.lower, reference.higher))
    slope = Statistics(*((b - a) / (2 * STEP) for a, b in zip(low, high, strict=True)))
    mean = Statistics(*(x.mean(axis=0) for x in drawn))
    joint = np.concatenate([drawn.shape, drawn.spread[:, None]], axis=1)
    return Expected(mean, slope, root_of_inverse(drawn.shape), root_of_inverse(joint), free, reference.view)


def held(at: Expected, seen: Statistics) -> Held:
    """Statistics of one or many data sets against those expected."""
    off = Statistics(*(a - b for a, b in zip(seen, at.mean, strict=True)))
    white, along = off.shape @ at.root, at.slope.shape @ at.root
    length = float(along @ along)
    moved = white @ along / length if length > 0 else np.zeros(white.shape[:-1])  # log score_scale, by shape alone
    across = white - moved[..., None] * along
    estimated = moved if "score_scale" in at.free and length > INFORMATIVE else np.zeros_like(moved)
    slope = np.append(at.slope.shape, at.slope.spread) @ at.joint_root
    joint = np.concatenate([off.shape, off.spread[..., None]], axis=-1) @ at.joint_root
    return Held(seen, off, at.slope, estimated, across, joint @ slope if slope @ slope > 0 else None, at.free, at.view)


def numbers(at: Expected, seen: Statistics, among: str = "law") -> dict[str, np.ndarray]:
    """The numbers of all tests that have one, by name: those that are ranked among data sets of the law (or of a rival)."""
    against = held(at, seen)
    found = {test.name: test.number(against) for test in TESTS if test.among == among}
    return {name: number for name, number in found.items() if number is not None}


def p_values(found: dict[str, np.ndarray], null: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Ranks of tests among those of simulated data sets, on both sides where the test has two."""
    two_sided = {test.name: test.two_sided for test in TESTS}
    return {name: ranks(x, null[name], two_sided[name]) for name, x in found.items()}


def ranks(x: np.ndarray, null: np.ndarray, two_sided: bool) -> np.ndarray:
    """Share of the null that is as far out as x, counting x itself."""
    ordered, n = np.sort(null), len(null)
    above = (1 + n - np.searchsorted(ordered, x, "left")) / (n + 1)
    below = (1 + np.searchsorted(ordered, x, "right")) / (n + 1)
    return np.minimum(1, 2 * np.minimum(above, below)) if two_sided else above


def holm(p: dict[str, float]) -> dict[str, float]:
    """P-values corrected for their number: to refuse those below a level refuses any falsely at most at that rate."""
    corrected, largest = {}, 0.0
    for rank, name in enumerate(sorted(p, key=lambda name: p[name])):
        largest = max(largest, min(1.0, (len(p) - rank) * float(p[name])))
        corrected[name] = largest
    return {name: corrected[name] for name in p}


def root_of_inverse(x: Float[np.ndarray, "R e"]) -> Float[np.ndarray, "e r"]:
    """V with V V' the inverse of the covariance of x, on the space where it varies."""
    sd = x.std(axis=0)
    use = sd > ROUNDING
    if not use.any():
        return np.zeros((len(sd), 0))
    values, vectors = np.linalg.eigh(np.corrcoef(x[:, use], rowvar=False).reshape(use.sum(), use.sum()))
    keep = values > SINGULAR * values.max()
    root = np.zeros((len(sd), keep.sum()))
    root[use] = vectors[:, keep] / np.sqrt(values[keep]) / sd[use, None]
    return root


def sharing(y: Float[np.ndarray, "network s coordinate"], view: statistics.View, rng: np.random.Generator) -> float:
    """P-value of `nothing is shared by the coordinates of a network`: spread, if coordinates are shuffled between networks.

    Exact for whatever the coordinates' distribution is.
    """
    y = y[: max(2, SHUFFLED // y[0].size)]
    times = int(np.clip(2**24 // y.size, 199, 499))
    observed = statistics.statistics(statistics.features(y, view).mean(axis=0), view).spread
    columns = np.ascontiguousarray(np.moveaxis(y, 2, 1)).reshape(-1, y.shape[1])
    larger = 0
    for _ in range(times):
        mixed = rng.permutation(columns).reshape(len(y), -1, y.shape[1]).swapaxes(1, 2)
        larger += bool(statistics.statistics(statistics.features(mixed, view).mean(axis=0), view).spread >= observed)
    return (1 + larger) / (times + 1)
