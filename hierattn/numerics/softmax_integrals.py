"""Moments of u = sum_j d_j w_j^2, w = softmax(p), for independent scores p_j ~ N(b_j, tau_j^2): one-dimensional integrals.

With M_k,j(t) = E[e^{k p_j} exp(-t e^{p_j})], 1/x^2 = int t e^{-tx} dt and 1/x^4 = int t^3/6 e^{-tx} dt over t > 0 give

    E[u]   = int t     sum_j d_j M_2,j     prod_{k != j} M_0,k dt
    E[u^2] = int t^3/6 (sum_j d_j^2 M_4,j prod_{k != j} M_0,k + sum_{j != l} d_j d_l M_2,j M_2,l prod_{k != j,l} M_0,k) dt

(THEORY section 11, there for i.i.d. scores). Put t = e^x and g_k(x) = exp(kx - e^x): t^k M_k,j(t) = E[g_k(x + p_j)] is smooth
in x and never overflows, and the trapezoid rule in x converges faster than any power of its step.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

STEP = 0.15
LARGEST_GRID = 20_000


class MeanVariance(NamedTuple):
    """Mean and variance of a random variable, and bounds on their errors."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float


def moments(d: np.ndarray, b: np.ndarray, tau: np.ndarray) -> MeanVariance | None:
    """Mean and variance of u; None where the scores' scales differ too much for one grid."""
    if tau.max() < 0.03 and np.ptp(b) == 0 and all(np.ptp(x) <= 1e-12 * np.abs(x).max() for x in (tau, d)):
        return _narrow(len(d), tau.mean(), d.mean())
    if not np.all(tau > 0) or _grid(b, tau, STEP).size > LARGEST_GRID:
        return None
    (mean, square), (other_mean, other_square) = _integrals(d, b, tau, STEP), _integrals(d, b, tau, 1.37 * STEP)
    variance, other_variance = square - mean**2, other_square - other_mean**2
    rounding = 1e-14 * np.abs(d).max()
    mean_error, variance_error = abs(mean - other_mean) + rounding, abs(variance - other_variance) + rounding * abs(mean)
    return MeanVariance(mean, variance, mean_error, variance_error)


def mixed(d: np.ndarray, b: np.ndarray, tau: np.ndarray, n_H: int | None) -> MeanVariance | None:
    """As `moments`, for scores that share a random scale: tau_j^2 r with r ~ chi2_{n_H} / n_H (None: r = 1).

    Gauss-Legendre panels in sqrt(r), finer towards 0 where wide scores turn into narrow ones; two numbers of nodes in a panel
    give the error.
    """
    if n_H is None:
        return moments(d, b, tau)
    coarse, fine = (_mixed(d, b, tau, n_H, nodes) for nodes in (10, 14))
    if fine is None or coarse is None:
        return None
    mean, variance, mean_error, variance_error = fine
    return MeanVariance(mean, variance, mean_error + abs(mean - coarse.mean), variance_error + abs(variance - coarse.variance))


def _mixed(d: np.ndarray, b: np.ndarray, tau: np.ndarray, n_H: int, nodes: int) -> MeanVariance | None:
    from scipy import stats  # as in rqmc

    chi = stats.chi(n_H, scale=n_H**-0.5)
    low, high = chi.ppf(1e-17), chi.isf(1e-17)
    halvings = max(0, int(np.ceil(np.log2(max(tau.max() * high, 1)))))
    ends = np.unique(np.concatenate([np.linspace(low, high, 4), high * 2.0 ** -np.arange(halvings)]).clip(low, high))
    x, weight = np.polynomial.legendre.leggauss(nodes)
    root_r = ((ends[1:] + ends[:-1])[:, None] / 2 + np.diff(ends)[:, None] / 2 * x).ravel()
    weight = (np.diff(ends)[:, None] / 2 * weight).ravel() * chi.pdf(root_r)
    given_r = [moments(d, b, tau * scale) for scale in root_r]
    if any(given is None for given in given_r):
        return None
    means, variances, mean_errors, variance_errors = np.array(given_r).T
    mean = weight @ means
    return MeanVariance(mean, weight @ (variances + (means - mean) ** 2), weight @ mean_errors, weight @ variance_errors)


def _narrow(m: int, tau: float, d: float) -> MeanVariance:
    """Series for m i.i.d. scores of a small scale, whose variance drowns in rounding above.

    The next relative terms are below .8 tau^6 and 20 tau^4 for every m.
    """
    mean = 1 / m + (m - 1) * tau**2 / m**2 + (m - 1) * (m - 6) * tau**4 / (2 * m**3)
    variance = mean**2 * 2 * (m - 1) / m**2 * tau**4 * (1 + (3 * m - 16) * tau**2 / m)
    return MeanVariance(d * mean, d**2 * variance, abs(d) * (tau**6 + 1e-15) * mean, 25 * tau**4 * d**2 * variance)


def _grid(b: np.ndarray, tau: np.ndarray, step: float) -> np.ndarray:
    reach = 12 * tau.max()
    return np.arange(-45 - reach - b.max(), 8 + reach - b.max(), step * max(1, tau.min()))


def _integrals(d: np.ndarray, b: np.ndarray, tau: np.ndarray, step: float) -> tuple[float, float]:
    """E[u] and E[u^2]. Keys that are alike are integrated once and counted."""
    x = _grid(b, tau, step)
    log_M_0, A, B, D = np.zeros((4, x.size))
    kinds, counts = np.unique(np.stack([d, b, tau]), axis=1, return_counts=True)
    for (d_j, b_j, tau_j), count in zip(kinds.T, counts, strict=True):
        M_0, g_2, g_4 = _expectations(x + b_j, tau_j, step)
        M_0 = np.maximum(M_0, 1e-150)
        log_M_0 += count * np.log(M_0)
        A += count * d_j * g_2 / M_0
        B += count * (d_j * g_2 / M_0) ** 2
        D += count * d_j**2 * g_4 / M_0
    M_0, width = np.exp(log_M_0), x[1] - x[0]
    return float(M_0 @ A * width), float(M_0 @ (D + A**2 - B) * width / 6)


def _expectations(x: np.ndarray, tau: float, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E[g_k(x + p)] for k = 0, 2, 4. Where p is wide, integrate over y = x + p, on which g_k is narrow; k = 0 by parts."""
    if tau <= 1:
        z = np.arange(-9, 9 + step, step)
        weight = np.exp(-(z**2) / 2) * step / np.sqrt(2 * np.pi)
        e = np.exp(x[:, None] + tau * z)
        g_0 = np.exp(-e)
        return g_0 @ weight, (e**2 * g_0) @ weight, (e**4 * g_0) @ weight
    y = np.arange(-40, 5 + step, step)
    g_1 = np.exp(y - np.exp(y)) * step
    z = (y - x[:, None]) / tau
    density = np.exp(-(z**2) / 2) / (tau * np.sqrt(2 * np.pi))
    return ndtr(z) @ g_1, density @ (np.exp(y) * g_1), density @ (np.exp(3 * y) * g_1)


def density(y: np.ndarray, m: int, tau: float) -> np.ndarray:
    """Density at y of sum_j w_j zeta_j, zeta standard normal, w the softmax of m i.i.d. scores of scale tau; 1e-13 or so.

    sum_j w_j zeta_j <= y where T = sum_j e^{p_j} (zeta_j - y) <= 0, a sum of i.i.d. terms with characteristic function
    chi(t) = E[exp(-i y t e^p - (t e^p)^2 / 2)]. Differentiating P(T <= 0) leaves (1/pi) int Re(m chi^{m-1} eta) dt over t > 0,
    eta the same expectation with e^p before it. As above t = e^x, and both are convolutions over x + p.
    """
    step = min(0.05, tau / 3)
    reach = int(np.ceil(8.5 * tau / step))
    x = np.arange(-40 - 17 * tau, 4 + 17 * tau, step)
    weight = np.exp(-((np.arange(-reach, reach + 1) * step / tau) ** 2) / 2)
    weight /= weight.sum()
    e = np.exp(np.minimum(x, 5))
    g = np.exp(-1j * np.multiply.outer(y, e) - e**2 / 2)
    turned = np.fft.fft(weight, x.size)
    around = (np.fft.ifft(np.fft.fft(values) * turned) for values in (g, e * g))
    chi, t_eta = (values[:, 2 * reach :] for values in around)  # what comes before is wrapped around the ends
    return np.sum(m * (chi ** (m - 1) * t_eta).real, axis=1) * step / np.pi


def overlap(m: int, tau: float, rho: float) -> tuple[float, float]:
    """E[sum_j w_j w'_j] of two rows of weights over m keys, and a bound on its error; rho = 1 gives E[sum_j w_j^2].

    Scores are i.i.d. over keys with standard deviation tau, and have correlation rho >= 0 between the rows. With 1/x the
    integral of e^{-tx} twice, and e^x, e^y for the two variables,

        E = m int int E[g_1(x + p) g_1(y + p')] E[g_0(x + p) g_0(y + p')]^{m-1} dx dy

    Given what p and p' share both expectations are products, so that each is one product of matrices.
    """
    if tau == 0:
        return 1 / m, 0.0
    if rho == 1:
        found = moments(np.ones(m), np.zeros(m), np.full(m, tau))
        if found is None:
            raise ValueError(f"scores of scale {tau} are too wide for one grid")
        return found.mean, found.mean_error
    fine, coarse = (_overlap(m, tau, rho, step) for step in (STEP, 1.37 * STEP))
    return fine, abs(fine - coarse) + 1e-14


def _overlap(m: int, tau: float, rho: float, step: float) -> float:
    shared, own = tau * np.sqrt(rho), tau * np.sqrt(1 - rho)
    low = -45 - 12 * tau - np.log(m)
    x = np.arange(low, 8 + 12 * tau, step)
    z = np.arange(-9, 9 + step, step * min(1.0, 1 / max(shared, 1e-3)))
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    points = (x[:, None] + shared * z).ravel()
    g_0, g_1 = (values.reshape(x.size, z.size) for values in _two_expectations(points, own, step))
    M = (g_0 * weight) @ g_0.T
    E = (g_1 * weight) @ g_1.T
    return float(m * np.sum(E * np.exp((m - 1) * np.log(np.maximum(M, 1e-300)))) * step**2)


def _two_expectations(x: np.ndarray, tau: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """E[g_k(x + p)] for k = 0, 1, read off a fine table: both are smooth in x."""
    from scipy.interpolate import CubicSpline

    grid = np.arange(x.min() - step, x.max() + 2 * step, step / 4)
    y = np.arange(-9, 9 + step, step * min(1.0, 1 / max(tau, 1e-3)))
    weight = np.exp(-(y**2) / 2)
    weight /= weight.sum()
    e = np.exp(np.minimum(grid[:, None] + tau * y, 700))
    g_0 = np.exp(-e)
    return tuple(CubicSpline(grid, values)(x) for values in (g_0 @ weight, (e * g_0) @ weight))  # type: ignore[return-value]
