"""Is inference right? Simulation-based calibration (Talts et al. 2018) and coverage of intervals.

Parameters are drawn from the prior, data from the law given them, and the posterior is fitted. Over replicates the truth's rank
among independent posterior draws must be uniform, and intervals must cover as often as they say. Equal shapes: one compilation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from hierattn.base.float64 import in_float64
from hierattn.inference.calling import lookup
from hierattn.inference.fitting import choose_method, route
from hierattn.inference.methods.protocol import Method
from hierattn.inference.problem import own_priors, pose
from hierattn.inference.verdict import convergence
from hierattn.law.law import Law
from hierattn.layer.architecture import Architecture
from hierattn.numerics.random_numbers import normals
from hierattn.observed.observations import Observations

LEVELS = (50, 80, 90, 95)
RANKS = 99  # independent draws that the truth is ranked among: 100 ranks
SIMULATED = 20_000  # of the statistic of uniformity
CHAINS, NEW_COORDINATES = 4, 8
PARAMETERS = ("score_scale", "value_scale")


class Replicate(NamedTuple):
    """One fit to data with known parameters: ranks of the truth, which intervals cover it, and whether it converged."""

    ranks: dict[str, int]
    covered: dict[str, list[bool]]
    converged: bool
    truth: dict[str, float]


@dataclass(frozen=True)
class Design:
    """What is calibrated.

    - prior: distributions in place of the model's own
    - truth: parameters to use in all data sets instead of draws from the prior (coverage then, not calibration)
    - draw: outputs drawn in another way than `draw_outputs`, which calibration should notice
    """

    layer: Architecture
    K: np.ndarray
    networks: int
    coordinates: int
    tokens: list[int] | None = None
    prior: dict[str, Any] = field(default_factory=dict)
    truth: dict[str, float] = field(default_factory=dict)
    draw: Callable[..., np.ndarray] | None = None
    method: str | Method | tuple[Method, ...] = "auto"

    @property
    def model(self) -> ModuleType:
        """The law's, at finite or infinite head_dim."""
        return lookup("limit_law" if self.layer.head_dim is None else "finite_head_dim")

    @property
    def priors(self) -> dict[str, Any]:
        """Of both scales."""
        return own_priors(self.model, 1.0, self.K, self.layer.qk_norm is not None) | self.prior


def replicates(design: Design, number: int, seed: int = 0) -> Iterator[Replicate]:
    """Fits to `number` data sets of a design, one after the other."""
    for r in range(number):
        yield replicate(design, seed, r)


def replicate(design: Design, seed: int, r: int) -> Replicate:
    """The r-th data set and its fit."""
    key_truth, key_data, key_new = jax.random.split(jax.random.fold_in(jax.random.key(seed), r), 3)
    rng, prior, tokens = np.random.default_rng([seed, r]), design.priors, design.tokens
    keys = jax.random.split(key_truth, len(PARAMETERS))
    known = {name: float(prior[name].sample(key)) for name, key in zip(PARAMETERS, keys, strict=True)} | design.truth
    sizes = design.networks, design.coordinates
    outputs = (design.draw or draw_outputs)(design.layer, design.K, known, key_data, *sizes)[:, tokens or slice(None)]
    obs = Observations(outputs, kernel=design.K, tokens=tokens, heads=design.layer.heads)
    problem = pose(obs, design.layer, design.model, prior)
    method, _ = choose_method(problem, design.method)
    found = route(problem, method, seed + r, CHAINS)
    draws = {name: independent(x, rng) for name, x in found.draws.items()}
    both = (np.append(known[name], draws[name]) for name in PARAMETERS)
    squares = _mean_squares(design.layer, design.K, *both, key_new, tokens)
    ranks = {name: int((draws[name] < known[name]).sum()) for name in PARAMETERS}
    ranks["new_network"] = int((squares[1:] < squares[0]).sum())
    covered = {name: [covers(found.draws[name], level, known[name]) for level in LEVELS] for name in PARAMETERS}
    converged = not (method.sampled and convergence(found.draws, found.statistics))
    return Replicate(ranks, covered, converged, known)


@in_float64
def draw_outputs(layer: Architecture, K: Any, known: dict[str, float], rng_key: Any, networks: int, coordinates: int) -> Any:
    """Outputs (network, token, coordinate) of the law with known parameters."""
    law = Law(layer.with_scales(known["score_scale"], known["value_scale"]), K)
    return np.asarray(law.sample(rng_key, networks, coordinates), float)


@in_float64
def _mean_squares(layer: Architecture, K: Any, q: np.ndarray, o: np.ndarray, rng_key: Any, tokens: list[int] | None) -> Any:
    """Mean square output of new networks, one for each pair of parameters: what a posterior predicts."""
    law, (key_p, key_D, key_y) = Law(layer.with_scales(1.0, 1.0), K), jax.random.split(rng_key, 3)
    p, D = law.sample_scores(key_p, len(q)), law.sample_values(key_D, len(q))
    F = law.factor(q[:, None, None, None] * p, D)[:, tokens or slice(None)]
    y = F @ normals(key_y, (len(q), F.shape[-1], NEW_COORDINATES), F.dtype)
    return np.asarray(o**2 * (y**2).mean(axis=(1, 2)))


def independent(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """RANKS draws of (chain, draw) that are far enough apart to count as independent, as far as there are so many."""
    return rng.permutation(x.ravel()[np.linspace(0, x.size - 1, RANKS).astype(int)])


def covers(draws: np.ndarray, level: int, truth: float) -> bool:
    """Does the central interval of this level (in per cent) hold the truth?"""
    low, high = np.quantile(draws, [0.5 - level / 200, 0.5 + level / 200])
    return bool(low <= truth <= high)


def uniformity(ranks: np.ndarray, seed: int = 0, number: int = SIMULATED) -> float:
    """P-value of uniform ranks 0 .. RANKS: the largest excursion of their ECDF in binomial probability (Modrak et al. 2023)."""
    rng, N = np.random.default_rng(seed), len(ranks)
    simulated = np.array([_excursion(rng.integers(0, RANKS + 1, N), N) for _ in range(number)])
    return float((1 + np.sum(simulated <= _excursion(np.asarray(ranks), N))) / (1 + number))


def _excursion(ranks: np.ndarray, N: int) -> float:
    below = np.cumsum(np.bincount(ranks, minlength=RANKS + 1))[:-1]
    return float(_two_sided(N)[np.arange(RANKS), below].min())


@lru_cache(maxsize=8)
def _two_sided(N: int) -> np.ndarray:
    """Probability of a count as far from its mean, for every rank and every count of N replicates below it."""
    expected, counts = (np.arange(1, RANKS + 1) / (RANKS + 1))[:, None], np.arange(N + 1)
    return 2 * np.minimum(stats.binom.cdf(counts, N, expected), stats.binom.sf(counts - 1, N, expected))


def summarise(found: list[Replicate]) -> dict[str, Any]:
    """Coverage of every interval, p-values of uniform ranks, and how many fits converged."""
    record: dict[str, Any] = {"replicates": len(found), "converged": sum(replicate.converged for replicate in found)}
    for name in PARAMETERS:
        hits = np.sum([replicate.covered[name] for replicate in found], axis=0)
        record |= {f"{name}_covered_{level}": int(hit) for level, hit in zip(LEVELS, hits, strict=True)}
    for name in found[0].ranks:
        record[f"{name}_uniform_p_value"] = uniformity(np.array([replicate.ranks[name] for replicate in found]))
    return record
