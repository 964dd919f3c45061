"""c ~ chi2_n / n, the random factor of finite head dimensions: its nodes, and its quantiles."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtr


def quantile(u: np.ndarray, n_H: int) -> np.ndarray:
    """Of c, at probabilities u."""
    return gammaincinv(n_H / 2, u) * (2 / n_H)


@lru_cache(maxsize=64)
def log_nodes(n_H: int | None, step: float, shorter: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of log c, c ~ chi2_{n_H} / n_H, by the trapezoid rule with a step in its standard deviations; c = 1 without n_H."""
    if n_H is None:
        return np.zeros(1), np.ones(1)
    sd = np.sqrt(2 / n_H)
    x = np.arange(-90 / n_H - 9 * sd, 4 * np.log1p(9 * sd), step * sd * min(1, n_H / 8 + 0.3))
    log_density = n_H / 2 * (x - np.expm1(x))
    keep = log_density > log_density.max() - (32 if shorter else 40)
    w = np.exp(log_density[keep] - log_density.max())
    return x[keep], w / w.sum()


@lru_cache(maxsize=64)
def log_of_normal(n_H: int) -> Callable:
    """Log c as a function of a standard normal: the quantile transform, tabulated."""
    from scipy.interpolate import CubicSpline  # as in rqmc

    z = np.linspace(0, 8.5, 1001)
    lower, upper = gammaincinv(n_H / 2, ndtr(-z[:0:-1])), gammainccinv(n_H / 2, ndtr(-z))
    return CubicSpline(np.concatenate([-z[:0:-1], z]), np.log(2 / n_H * np.concatenate([lower, upper])))


def bartlett(z: np.ndarray, df: int) -> np.ndarray:
    """Factors B (..., size, r) with B B' ~ Wishart_df(I), made of as many normals: those above the diagonal are not used."""
    B, r = np.tril(z, -1), z.shape[-1]
    for i in range(r):
        B[..., i, i] = np.sqrt(df - i) * np.exp(log_of_normal(df - i)(z[..., i, i]) / 2)
    return B
