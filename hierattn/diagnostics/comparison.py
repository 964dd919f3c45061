"""Finite against limit, observed against law, Gaussian against law: distances, each with its standard error.

Errors here are standard errors; networks are the independent units everywhere. Distances between distributions of one token
are made of averaged Gaussians, never of a density estimate. The jackknife over batches of networks gives the standard error,
and the bias. A floor is what an estimate shows where there is nothing to see: taken off a KL, beside a total variation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammainc, gammaln, ndtri

from hierattn.base.errors import unusable
from hierattn.finite.collapsed import FiniteWidth
from hierattn.finite.inputs import RandomInputs
from hierattn.law.law import Law
from hierattn.law.marginal import Marginal, from_draws, jackknife_error
from hierattn.layer.architecture import Architecture
from hierattn.numerics.mixtures import Nodes

TAILS = {"99": 0.01, "999": 1e-3, "9999": 1e-4}
REACH, POINTS = 14.0, 1401  # standard deviations, and points on the way, of integrals over y > 0
LEVEL = POWER = 0.95
MEAN_ABSOLUTE = np.sqrt(2 / np.pi)  # E|z| of a standard normal: what a sum of absolute errors shows of noise
ENOUGH = 10  # observed exceedances that make a tail ratio
BINS = 32  # of equal probability under the law, for observed outputs


def compare(
    layer: Architecture,
    width: int,
    tokens: int = 4,
    activation: Any = "clip",
    token: int = 0,
    networks: int = 2**22,
    seed: int = 0,
    advance: Callable[[int], Any] | None = None,
) -> dict[str, Any]:
    """Networks of this width against their limit, one token, as a flat record.

    The limit is that of width and head_dim; where head_dim is given, names with `head_dim_` before them compare with the law
    that keeps it. Those with `gaussian_` say how far that law is from the Gaussian of infinitely many heads.
    """
    law = FiniteWidth(layer, RandomInputs(width, tokens, activation))
    finite = from_draws(law, token, networks, seed, advance)
    record = against_limit(finite, law.limit.marginal(token, seed=seed))
    if layer.head_dim is not None:
        closer = against_limit(finite, law.fixed_head_dim.marginal(token, seed=seed))
        record |= {f"head_dim_{name}": number for name, number in closer.items() if "finite" not in name}
    gaussian = against_gaussian(law.fixed_head_dim, token, seed=seed)
    return record | {f"gaussian_{name}": number for name, number in gaussian.items()}


def against_limit(finite: Marginal, limit: Marginal) -> dict[str, Any]:
    """How far one distribution is from another: KL and total variation, quantiles, kurtosis, Kolmogorov's distance."""
    y = np.linspace(0, REACH, POINTS) * np.sqrt(limit.variance)
    f, F = limit.pdf(y), limit.cdf(y)
    step = y[1]

    def distances(nodes: Nodes) -> dict[str, float]:
        row = Marginal(Nodes(nodes.x[None], nodes.w[None]), "closed form")
        g = row.pdf(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.where(g > 0, g * np.log(g / f), 0.0)
        found = {
            "kl": 2 * step * (divergence.sum() - divergence[0] / 2),
            "total_variation": step * (np.abs(g - f).sum() - np.abs(g[0] - f[0]) / 2),
            "ks_distance": np.abs(row.cdf(y) - F).max(),
            "variance_finite": row.variance,
            "excess_kurtosis_finite": row.excess_kurtosis,
            "square_correlation_finite": _square_correlation(row.excess_kurtosis),
        }
        return found | {f"tail_ratio_{name}": row.isf(p / 2) / limit.isf(p / 2) for name, p in TAILS.items()}

    rows = [distances(Nodes(x, w)) for x, w in zip(*finite.nodes, strict=True)]
    record: dict[str, Any] = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows], float)
        everything, parts = values[0], values[1:]
        bias = float((len(parts) - 1) * (parts.mean() - everything)) if name == "kl" else 0.0
        record |= {name: float(everything - bias), f"{name}_error": float(jackknife_error(parts))}
        record |= {"kl_floor": bias} if name == "kl" else {}
    record["total_variation_floor"] = float(step * finite.standard_error("pdf", y).sum() * MEAN_ABSOLUTE)
    kurtosis = float(limit.excess_kurtosis)
    return record | {
        "variance_limit": float(limit.variance),
        "excess_kurtosis_limit": kurtosis,
        "square_correlation_limit": _square_correlation(kurtosis),
    }


def against_gaussian(law: Law, token: int = 0, coordinates: int = 1, seed: int = 0) -> dict[str, Any]:
    """Is the Gaussian of infinitely many heads safe for one token?

    KL of the law from it, the error of its 99.9 % quantile of |y| relative to the law's, and the networks needed to tell the
    two apart with 95 % power at the 5 % level by the likelihood ratio, if `coordinates` of each are seen.
    """
    variance = law.with_infinite_head_dim().moments(token, seed).variance
    return marginal_against_gaussian(law.marginal(token, seed=seed), variance, coordinates)


def marginal_against_gaussian(marginal: Marginal, variance: float, coordinates: int = 1) -> dict[str, Any]:
    """The same for a marginal and the variance of a Gaussian."""
    return {
        "kl": likelihood_ratio(marginal, variance, coordinates).forward,
        "quantile_error_999": float(-ndtri(0.0005) * np.sqrt(variance) / marginal.isf(0.0005) - 1),
        "networks_needed": networks_needed(marginal, variance, coordinates),
    }


def networks_needed(marginal: Marginal, variance: float, coordinates: int = 1) -> int | None:
    """Networks that tell a law from a Gaussian with 95 % power at the 5 % level; None if nothing could."""
    ratio = likelihood_ratio(marginal, variance, coordinates)
    separation, noise = ratio.forward + ratio.backward, ndtri(LEVEL) * ratio.sd_gaussian + ndtri(POWER) * ratio.sd_law
    return int(np.ceil((noise / separation) ** 2)) if separation > 1e-12 else None


class LikelihoodRatio(NamedTuple):
    """log(law / Gaussian) for one network: mean under the law, minus that under the Gaussian, and standard deviations."""

    forward: float
    backward: float
    sd_law: float
    sd_gaussian: float


def likelihood_ratio(marginal: Marginal, variance: float, coordinates: int = 1) -> LikelihoodRatio:
    """Of the law against a Gaussian, if `coordinates` of a network are seen.

    A network's coordinates matter through t = log of their mean square, which is log v + log(chi2_C / C) given v.
    """
    x, w, half = np.asarray(marginal.nodes.x[0]), np.asarray(marginal.nodes.w[0]), coordinates / 2
    t = np.arange(x.min() - 80 / coordinates - 9 / half**0.5, x.max() + 4 * np.log1p(9 / half**0.5), 0.04 / half**0.5)

    def log_density(x: np.ndarray) -> np.ndarray:
        return half * (t[:, None] - x - np.exp(t[:, None] - x)) + half * np.log(half) - gammaln(half)

    with np.errstate(divide="ignore"):
        parts = log_density(x) + np.log(w)
    largest = parts.max(axis=1)
    law, gaussian = largest + np.log(np.exp(parts - largest[:, None]).sum(axis=1)), log_density(np.log([variance]))[:, 0]
    ratio, p, q = law - gaussian, np.exp(law) * (t[1] - t[0]), np.exp(gaussian) * (t[1] - t[0])
    means = p @ ratio, q @ ratio
    sds = (float(np.sqrt(weight @ (ratio - mean) ** 2)) for weight, mean in zip((p, q), means, strict=True))
    return LikelihoodRatio(float(means[0]), float(-means[1]), *sds)


def compare_outputs(outputs: Any, law: Law, token: int = 0, seed: int = 0) -> dict[str, Any]:
    """Observed outputs (network, token, coordinate) against a law, one token: distances, and tests whose p-values are honest.

    ks_p_value          Kolmogorov-Smirnov, one coordinate a network
    scale_p_value       the same for the networks' mean squares, which only shared scores spread as the law says
    projection_p_value  two-sample tests of random combinations of tokens against draws of the law, Bonferroni
    """
    from scipy import stats  # as in rqmc

    from hierattn.numerics.two_samples import projection_p_values

    y = np.asarray(outputs, float)
    if y.ndim != 3 or 0 in y.shape or y.shape[1] != law.shape[0]:
        raise unusable("outputs", f"shape (network, {law.shape[0]} tokens, coordinate)", np.shape(outputs))
    if not np.all(np.isfinite(y)):
        bad = np.argwhere(~np.isfinite(y))
        raise unusable("outputs", "finite numbers", f"{len(bad)} NaN or infinite, the first at {tuple(bad[0].tolist())}")
    if len(y) < 20:
        raise unusable("outputs", "at least 20 networks", len(y), "networks are the independent units")
    if np.ptp(y[:, token]) == 0:
        raise unusable("outputs", "outputs that vary", f"one value, {y[0, token, 0]:g}, for token {token}")
    seen, marginal = y[:, token], law.marginal(token, seed=seed)
    C, reasons = seen.shape[1], []
    record: dict[str, Any] = {"networks": len(y), "coordinates": C}
    for name, estimate in _statistics(marginal, C).items():
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
    kurtosis = float(marginal.excess_kurtosis)
    record |= {
        "variance_law": float(marginal.variance),
        "excess_kurtosis_law": kurtosis,
        "square_correlation_law": _square_correlation(kurtosis),
    }
    v, w = np.exp(marginal.nodes.x[0]), marginal.nodes.w[0]

    def cdf_of_mean_square(t: np.ndarray) -> np.ndarray:
        return gammainc(C / 2, C * np.asarray(t)[..., None] / (2 * v)) @ w

    record["ks_p_value"] = float(stats.kstest(seen[:, 0], lambda t: marginal.cdf(t)).pvalue)
    record["scale_p_value"] = float(stats.kstest((seen**2).mean(axis=1), cdf_of_mean_square).pvalue)
    drawn = np.asarray(law.sample(jax.random.key(seed), max(len(y), 10_000), 1), float)[:, :, 0]
    p_values = projection_p_values(y[:, :, 0], drawn, seed)
    record["projection_p_value"] = float(min(1.0, len(p_values) * min(p_values)))
    return record | {"reasons": reasons}


def _statistics(marginal: Marginal, coordinates: int) -> dict[str, Callable[[np.ndarray], float]]:
    """Functions of outputs (network, coordinate); distances are over bins of equal probability under the law."""
    shares = _shares_of(marginal)

    def divergence(y: np.ndarray) -> float:
        p = shares(y)
        return float(np.sum(p[p > 0] * np.log(BINS * p[p > 0])))

    def square_correlation(y: np.ndarray) -> float:
        square = y**2 - (y**2).mean()
        across = (square.sum(axis=1) ** 2 - (square**2).sum(axis=1)).mean() / (coordinates * (coordinates - 1))
        return float(across / (square**2).mean())

    def tail_ratio(p: float) -> Callable[[np.ndarray], float]:
        known = float(marginal.isf(p / 2))
        return lambda y: float(np.quantile(np.abs(y), 1 - p)) / known

    return {
        "kl": divergence,
        "total_variation": lambda y: float(np.abs(shares(y) - 1 / BINS).sum() / 2),
        "variance_observed": lambda y: float((y**2).mean()),
        "excess_kurtosis_observed": lambda y: float((y**4).mean() / (y**2).mean() ** 2 - 3),
        "square_correlation_observed": square_correlation,
    } | {f"tail_ratio_{name}": tail_ratio(p) for name, p in TAILS.items()}


def _shares_of(marginal: Marginal) -> Callable[[np.ndarray], np.ndarray]:
    """Shares of outputs in bins of equal probability under the law."""
    edges = marginal.ppf(np.arange(1, BINS) / BINS)
    return lambda y: np.bincount(np.searchsorted(edges, y.ravel()), minlength=BINS) / y.size


def _lacking(name: str, y: np.ndarray) -> dict[str, Any] | None:
    """Why a statistic cannot be had from these outputs, if it cannot."""
    if name == "square_correlation_observed" and y.shape[1] < 2:
        return {"code": "one_coordinate", "message": f"{name} needs two coordinates a network", "numbers": {"coordinates": 1}}
    exceeding = y.size * TAILS[name.removeprefix("tail_ratio_")] if name.startswith("tail_ratio_") else ENOUGH
    if exceeding < ENOUGH:
        message = f"{name} needs {ENOUGH} outputs in the tail, and {exceeding:.2g} are to be expected"
        return {"code": "few_outputs", "message": message, "numbers": {"expected": float(exceeding)}}
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


def _square_correlation(excess_kurtosis: Any) -> float:
    """Corr(y_a^2, y_b^2) of two coordinates of a network (THEORY section 4)."""
    return float(excess_kurtosis / 3 / (2 + excess_kurtosis))
