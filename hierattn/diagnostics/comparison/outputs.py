"""Observed against law: distances of one token's outputs, and tests whose p-values are honest.

Errors are standard errors, by the jackknife over groups of networks; distances are over bins of equal probability.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.special import gammainc

from hierattn.base.errors import unusable
from hierattn.base.reasons import reason
from hierattn.diagnostics.comparison.token import MEAN_ABSOLUTE, TAILS, chosen, square_correlation, square_correlation_of
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal, jackknife_error

ENOUGH = 10  # observed exceedances that make a tail ratio
FEWEST = 20  # networks
BINS = 32  # of equal probability under the law
DRAWN = 10_000  # networks of the law in a two-sample test, at least


def compare_outputs(outputs: Any, law: Law, token: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Observed outputs (network, token, coordinate) against a law, one token: distances, and tests whose p-values are honest.

    - ks_p_value: Kolmogorov-Smirnov, one coordinate of each network
    - scale_p_value: the same for the networks' mean squares, which only shared scores spread as the law says
    - projection_p_value: two-sample tests of random combinations of tokens against draws of the law, Bonferroni

    Without a token: the first of those that see most keys.
    """
    token = chosen(token, law.layer, law.shape)
    y = _checked(outputs, law, token)
    seen, marginal = y[:, token], law.marginal(token, seed=seed)
    distances, reasons = _distances(seen, marginal)
    kurtosis = float(marginal.excess_kurtosis)
    of_law = {
        "variance_law": float(marginal.variance),
        "excess_kurtosis_law": kurtosis,
        "square_correlation_law": square_correlation_of(kurtosis),
    }
    sizes = {"token": token, "networks": len(y), "coordinates": seen.shape[1]}
    return sizes | distances | of_law | _p_values(y, token, law, marginal, seed) | {"reasons": reasons}


def _checked(outputs: Any, law: Law, token: int) -> np.ndarray:
    """Outputs of enough networks, finite, that vary."""
    y = np.asarray(outputs, float)
    if y.ndim != 3 or 0 in y.shape or y.shape[1] != law.shape[0]:
        raise unusable("outputs", f"shape (network, {law.shape[0]} tokens, coordinate)", np.shape(outputs))
    if not np.all(np.isfinite(y)):
        bad = np.argwhere(~np.isfinite(y))
        raise unusable("outputs", "finite numbers", f"{len(bad)} NaN or infinite, the first at {tuple(bad[0].tolist())}")
    if len(y) < FEWEST:
        raise unusable("outputs", f"at least {FEWEST} networks", len(y), "networks are the independent units")
    if np.ptp(y[:, token]) == 0:
        raise unusable("outputs", "outputs that vary", f"one value, {y[0, token, 0]:g}, for token {token}")
    return y


def _distances(seen: np.ndarray, marginal: Marginal) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All statistics of outputs (network, coordinate) with their errors, and why some cannot be had."""
    record: dict[str, Any] = {}
    reasons = []
    for name, estimate in _statistics(marginal).items():
        lacking = _lacking(name, seen)
        if lacking:
            record |= {name: None, f"{name}_error": None}
            reasons.append(lacking)
            continue
        everything, error, bias = _jackknife(estimate, seen)
        record |= {name: everything - (bias if name == "kl" else 0), f"{name}_error": error}
        record |= {"kl_floor": bias} if name == "kl" else {}
        if name == "total_variation":
            record["total_variation_floor"] = _floor(marginal, seen)
    return record, reasons


def _p_values(y: np.ndarray, token: int, law: Law, marginal: Marginal, seed: int) -> dict[str, float]:
    from scipy import stats  # as in rqmc

    from hierattn.numerics.two_samples import projection_p_values

    seen, C = y[:, token], y.shape[2]
    v, w = np.exp(marginal.nodes.x[0]), marginal.nodes.w[0]

    def cdf_of_mean_square(t: np.ndarray) -> np.ndarray:
        return gammainc(C / 2, C * np.asarray(t)[..., None] / (2 * v)) @ w

    drawn = np.asarray(law.sample(jax.random.key(seed), max(len(y), DRAWN), 1), float)[:, :, 0]
    projections = projection_p_values(y[:, :, 0], drawn, seed)
    return {
        "ks_p_value": float(stats.kstest(seen[:, 0], lambda t: marginal.cdf(t)).pvalue),
        "scale_p_value": float(stats.kstest((seen**2).mean(axis=1), cdf_of_mean_square).pvalue),
        "projection_p_value": float(min(1.0, len(projections) * min(projections))),
    }


def _statistics(marginal: Marginal) -> dict[str, Callable[[np.ndarray], float]]:
    """Functions of outputs (network, coordinate); distances are over bins of equal probability under the law."""
    shares = _shares_of(marginal)

    def divergence(y: np.ndarray) -> float:
        p = shares(y)
        return float(np.sum(p[p > 0] * np.log(BINS * p[p > 0])))

    def tail_ratio(p: float) -> Callable[[np.ndarray], float]:
        known = float(marginal.isf(p / 2))
        return lambda y: float(np.quantile(np.abs(y), 1 - p)) / known

    return {
        "kl": divergence,
        "total_variation": lambda y: float(np.abs(shares(y) - 1 / BINS).sum() / 2),
        "variance_observed": lambda y: float((y**2).mean()),
        "excess_kurtosis_observed": lambda y: float((y**4).mean() / (y**2).mean() ** 2 - 3),
        "square_correlation_observed": lambda y: square_correlation(y[:, None]),
    } | {f"tail_ratio_{name}": tail_ratio(p) for name, p in TAILS.items()}


def _shares_of(marginal: Marginal) -> Callable[[np.ndarray], np.ndarray]:
    """Shares of outputs in bins of equal probability under the law."""
    edges = marginal.ppf(np.arange(1, BINS) / BINS)
    return lambda y: np.bincount(np.searchsorted(edges, y.ravel()), minlength=BINS) / y.size


def _lacking(name: str, y: np.ndarray) -> dict[str, Any] | None:
    """Why a statistic cannot be had from these outputs, if it cannot."""
    if name == "square_correlation_observed" and y.shape[1] < 2:
        return reason("one_coordinate", f"{name} needs two coordinates of each network", coordinates=1)
    exceeding = y.size * TAILS[name.removeprefix("tail_ratio_")] if name.startswith("tail_ratio_") else ENOUGH
    if exceeding < ENOUGH:
        message = f"{name} needs {ENOUGH} outputs in the tail, and {exceeding:.2g} are to be expected"
        return reason("few_outputs", message, expected=float(exceeding))
    return None


def _leaving_groups_out(estimate: Callable[[np.ndarray], Any], y: np.ndarray) -> np.ndarray:
    groups = np.arange(len(y)) % min(len(y), 40)
    return np.array([estimate(y[groups != g]) for g in range(groups.max() + 1)])


def _jackknife(estimate: Callable[[np.ndarray], float], y: np.ndarray) -> tuple[float, float, float]:
    """An estimate, its standard error and its bias, leaving out groups of networks."""
    everything, parts = estimate(y), _leaving_groups_out(estimate, y)
    return everything, float(jackknife_error(parts)), float((len(parts) - 1) * (parts.mean() - everything))


def _floor(marginal: Marginal, y: np.ndarray) -> float:
    """The total variation that shares of outputs show of noise alone."""
    return float(jackknife_error(_leaving_groups_out(_shares_of(marginal), y)).sum() * MEAN_ABSOLUTE / 2)
