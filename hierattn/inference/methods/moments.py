"""Instant estimates of both scales from the first two moments of S = Y Y', with bootstrap errors over networks.

Five ratios of means over networks do not depend on value_scale: f_2 / f_1, and f_1^2, f_1 f_2, f_2^2 and sum_ij S~_ij^2 over
the square of f_1's mean (`moment_table`). What they are expected to be is tabulated over score_scale; the estimate is where
they come closest to the observed ones, by least squares weighted with the ratios' own covariance; value_scale follows from f_1.
All of it is repeated for networks drawn with replacement.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline

from hierattn.inference.likelihood import deviances
from hierattn.inference.methods import moment_table, priors
from hierattn.inference.methods.moment_table import PILOT, Directions, averages, directions, expected_features, features
from hierattn.inference.methods.one_token import ambiguity
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.problem import Posterior, Problem

MODELS = ("limit_law", "finite_head_dim")
MANY = 2**21  # latent numbers beyond which a posterior over scores takes too long
DROP = 6.0  # of the prior's log density within which estimates are looked for: all but 5e-4 of a log-normal prior
SCALES, FINE = 61, 2001  # score scales of the table, and of its interpolation
BLOCKS = 1000  # networks are drawn with replacement in so many blocks at most
CHUNK = 2**22  # numbers held at once
SINGULAR = 1e-8  # eigenvalues of a correlation matrix that are rounding alone
AT_AN_END = 0.01  # share of estimates that is worth a word


@dataclass(frozen=True)
class Moments(Method):
    """Bootstrap replicates of estimates. draws: of each chain; most_points: sets of scores behind an expectation."""

    name = "moments"
    draws: int = 1000
    most_points: int = moment_table.MOST_POINTS

    def refuses(self, problem: Problem) -> str | None:
        """All but the law with one known kernel, heads that share nothing at finite head_dim, and two networks or more."""
        layer = problem.layer
        if problem.name not in MODELS:
            return f"fits {' and '.join(MODELS)}, not the model {problem.name}"
        if problem.observations.kernel is None or problem.K.ndim != 2:
            return "needs one kernel for all networks"
        if problem.observations.networks < 2:
            return "needs at least 2 networks, to be drawn with replacement"
        if layer.head_dim is not None and layer.group_size > 1:
            return "knows no key_value_heads at finite head_dim: heads must share nothing"
        if layer.sink_scale is not None:
            return "knows no sink_scale: sinks that vary between networks"
        if layer.head_dim is not None and layer.qk_norm == "rms_all":
            return "knows no qk_norm over all heads at finite head_dim: heads must share nothing"
        if layer.score_factor == 0:
            return f"knows no scaling {layer.scaling!r} at infinite head_dim: scores vanish"
        return None

    def prefers(self, problem: Problem) -> str | None:
        """For the limit law, if scores are too many for anything else."""
        obs, layer = problem.observations, problem.layer
        size = obs.networks * layer.heads * obs.s * problem.K.shape[-1]
        usual = problem.name == "limit_law" and layer.rotary is None and layer.head_dim is None
        return f"{obs.networks} networks: too many for a posterior over their scores" if usual and size > MANY else None

    def sample(self, problem: Problem, run: Run) -> Posterior:
        """All of a chain's draws at once."""
        return by_moments(problem, run.seed, run.chains, self.draws, self.most_points)

    def log_likelihood(self, problem: Problem, found: Posterior, run: Run) -> str:
        """There is none."""
        return "estimates from moments have no likelihood"


def by_moments(
    problem: Problem, seed: int, chains: int = 4, draws: int = 1000, most_points: int = moment_table.MOST_POINTS
) -> Posterior:
    """Bootstrap replicates of estimates of score_scale and value_scale: no posterior, but near one for many networks.

    Where two score scales explain the moments equally well a replicate takes one of them, with the prior's odds.
    statistics: `lp`, minus half the distance between expected and observed ratios in squared standard errors.
    """
    scale, prior = problem.observations.scale, problem.prior["score_scale"]
    log_q = np.linspace(*priors.span(prior, "score_scale", DROP), SCALES)
    S = problem.observations.S / scale**2
    at = _choose_directions(problem, log_q, S.mean(axis=0))
    expected = expected_features(averages(problem.law, np.exp(log_q), at, most_points), problem.observations.coordinates)
    rng, log_f = np.random.default_rng(seed), CubicSpline(log_q, np.log(expected[:, 0]))
    observed = np.concatenate([features(part, at) for part in np.array_split(S, 1 + S.size // CHUNK)])
    means = np.concatenate([observed.mean(axis=0)[None], resampled(observed, chains * draws, rng)])  # the first: as observed
    root, x = _root_of_weights(ratios(means[1:])), np.linspace(log_q[0], log_q[-1], FINE)
    target, reached = CubicSpline(log_q, ratios(expected))(x) @ root, ratios(means) @ root
    flat = np.ptp(target, axis=0).max(initial=0) < 1e-6
    if flat:
        drawn = np.asarray(prior.sample(jax.random.key(seed), (len(means),)), float)
        found, distance = np.log(drawn), np.sum((reached - target[0]) ** 2, axis=1)
    else:
        found, distance = closest(x, target, reached, priors.log_density(prior, x), rng)
    log_o = np.log(scale) + (np.log(means[:, 0]) - log_f(found)) / 2
    q, o = np.exp(found), np.exp(log_o)
    reasons = [_bootstrap(len(S), q[0], o[0])]
    if flat:
        reasons.append(ambiguity.unidentified())
    else:
        profile = np.sum((target - reached[0]) ** 2, axis=1)
        reasons += _modes(x, profile, found[1:], o[0] * np.exp((log_f(found[0]) - log_f(x)) / 2)) + _ends(found[1:], x)
    shape = (chains, draws)
    posterior = {"score_scale": q[1:].reshape(shape), "value_scale": o[1:].reshape(shape)}
    return Posterior(posterior, {"lp": -distance[1:].reshape(shape) / 2}, "moments", reasons=tuple(reasons))


def _choose_directions(problem: Problem, log_q: np.ndarray, S: Float[np.ndarray, "t t"]) -> Directions:
    """At the score_scale at which a Gaussian fits best, or the middle of the prior's range for one token."""
    t = len(S)
    Sigma = averages(problem.law, np.exp(log_q), Directions(np.eye(t), np.zeros(t)), PILOT).Sigma
    if t == 1:
        return directions(Sigma, log_q, len(log_q) // 2)
    return directions(Sigma, log_q, int(deviances(Sigma, S).argmin()))


def ratios(means: Float[np.ndarray, "*any 6"]) -> Float[np.ndarray, "*any 5"]:
    """Of means of features, free of value_scale."""
    f_1 = means[..., :1]
    return np.concatenate([means[..., 1:2] / f_1, means[..., 2:] / f_1**2], axis=-1)


def resampled(values: Float[np.ndarray, "network 6"], number: int, rng: np.random.Generator) -> Float[np.ndarray, "R 6"]:
    """Means over networks drawn with replacement; of very many networks, over blocks of them."""
    parts = np.array_split(values[rng.permutation(len(values))], min(len(values), BLOCKS))
    sums, sizes = np.array([part.sum(axis=0) for part in parts]), np.array([len(part) for part in parts])
    at_once = max(1, CHUNK // len(parts))
    found = []
    for first in range(0, number, at_once):
        counts = rng.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), min(at_once, number - first))
        found.append(counts @ sums / (counts @ sizes)[:, None])
    return np.concatenate(found)


def _root_of_weights(h: Float[np.ndarray, "R 5"]) -> Float[np.ndarray, "5 r"]:
    """V with V V' the inverse of the ratios' covariance, where they vary independently."""
    sd = h.std(axis=0)
    use = sd > 1e-9 * np.abs(h).max(axis=0, initial=1e-300)
    values, vectors = np.linalg.eigh(np.corrcoef(h[:, use], rowvar=False).reshape(use.sum(), use.sum()))
    keep = values > SINGULAR * values.max(initial=0)
    root = np.zeros((len(sd), keep.sum()))
    root[use] = vectors[:, keep] / np.sqrt(values[keep]) / sd[use, None]
    return root


def closest(
    x: Float[np.ndarray, " F"], target: Float[np.ndarray, "F r"], reached: Float[np.ndarray, "R r"], log_prior: Any, rng: Any
) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Where the curve is closest to every point, and the squared distance.

    Of several minima one is chosen at random, with odds of exp(-distance / 2) times the prior; for the first point the best.
    """
    found, distances = np.empty(len(reached)), np.empty(len(reached))
    for rows in np.array_split(np.arange(len(reached)), 1 + reached.size * len(x) // CHUNK):
        d = np.sum(target**2, axis=1) - 2 * reached[rows] @ target.T + np.sum(reached[rows] ** 2, axis=1)[:, None]
        padded = np.pad(d, ((0, 0), (1, 1)), constant_values=np.inf)
        row, i = np.nonzero((d <= padded[:, :-2]) & (d < padded[:, 2:]))
        inside = np.clip(i, 1, len(x) - 2)
        before, here, after = (d[row, inside + k] for k in (-1, 0, 1))
        bend = before - 2 * here + after
        move = np.where((i == inside) & (bend > 0), (before - after) / (2 * np.where(bend > 0, bend, 1)), 0.0)
        depth = np.maximum(d[row, i] - bend * move**2 / 2, 0)
        odds = -depth / 2 + log_prior[i] + rng.gumbel(size=len(row)) * (rows[row] > 0)
        order = np.lexsort((odds, row))
        last = order[np.append(np.diff(row[order]) > 0, True)]
        found[rows], distances[rows] = (x[i] + move * (x[1] - x[0]))[last], depth[last]
    return found, distances


def _bootstrap(networks: int, q: float, o: float) -> dict[str, Any]:
    message = f"estimates from moments, {networks} networks drawn with replacement again and again: draws are not a posterior"
    numbers = {"networks": networks, "score_scale": float(q), "value_scale": float(o)}
    return {"code": "bootstrap", "message": message, "numbers": numbers}


def _modes(x: np.ndarray, profile: np.ndarray, found: np.ndarray, value_scale: np.ndarray) -> list[dict[str, Any]]:
    """Minima of the distance, if more than one is chosen."""
    height = np.exp((profile.min() - profile) * ambiguity.NATS / max(np.ptp(profile), 1e-300))
    places, cuts = ambiguity.peaks(height)
    masses = np.bincount(np.searchsorted(x[cuts], found), minlength=len(places)) / len(found)
    modes = list(zip(np.exp(x[places]), value_scale[places], masses, strict=True))
    return ambiguity.two_modes(modes, "more than one score_scale explains the moments")


def _ends(found: np.ndarray, x: np.ndarray) -> list[dict[str, Any]]:
    """Are estimates at the ends of the prior's range?"""
    share = float(np.mean((found <= x[0]) | (found >= x[-1])))
    if share < AT_AN_END:
        return []
    message = f"{share:.0%} of the estimates of score_scale are at an end of its prior's range: moments do not determine it"
    return [{"code": "at_an_end", "message": message, "numbers": {"share": share}}]
