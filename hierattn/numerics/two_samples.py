"""What can be asked of any two-level law of outputs: its moments, and whether two samples of networks follow one law.

Samples are (network, output, coordinate). Networks are the independent units: every test takes one number from each.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from hierattn.base.errors import unusable
from hierattn.numerics import rqmc

PROJECTIONS = 8
MEAN_KOLMOGOROV = 0.8687  # mean of Kolmogorov's distribution: what a distance shows of noise, times sqrt(1/n + 1/m)
ACCURACY, BUDGET = 1e-4, 2**23


def two_samples(x: Any, y: Any, seed: int = 0) -> dict[str, Any]:
    """Do two samples follow one law? Distances, variances with standard errors, and p-values that count all tests made.

    - ks_p_value: two-sample Kolmogorov-Smirnov of every output
    - projection_p_value: the same of random combinations of outputs
    - scale_p_value: the same of mean squares over coordinates, which networks with common scalars spread
    - product_p_value: means of products of outputs in one coordinate, and of their squares in two
    """
    x, y = (np.asarray(z, float).reshape(len(z), -1, np.shape(z)[-1]) for z in (x, y))
    if x.shape[1:] != y.shape[1:] or min(len(x), len(y)) < 20:
        raise unusable("samples", "two of one shape with at least 20 networks each", f"{x.shape} and {y.shape}")
    each = [stats.ks_2samp(a, b) for a, b in zip(x[:, :, 0].T, y[:, :, 0].T, strict=True)]
    squares = [(z**2).mean(axis=2) for z in (x, y)]
    p_values = {
        "ks": [test.pvalue for test in each],
        "projection": projection_p_values(x[:, :, 0], y[:, :, 0], seed),
        "scale": [stats.ks_2samp(a, b).pvalue for a, b in zip(squares[0].T, squares[1].T, strict=True)],
        "product": _product_p_values(x, y),
    }
    record: dict[str, Any] = {}
    for name, squared in zip(("finite", "limit"), squares, strict=True):
        record |= {f"variance_{name}": squared.mean(axis=0).tolist()}
        record |= {f"variance_{name}_error": float((squared.std(axis=0, ddof=1) / np.sqrt(len(squared))).max())}
    record["ks_distance"] = float(max(test.statistic for test in each))
    record["ks_distance_floor"] = MEAN_KOLMOGOROV * float(np.sqrt(1 / len(x) + 1 / len(y)))
    record |= {f"{name}_p_value": _smallest(values) for name, values in p_values.items()}
    return record | {"p_value": _smallest([record[f"{name}_p_value"] for name in p_values])}


def projection_p_values(x: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    """Two-sample tests of random combinations of outputs (network, output)."""
    directions = np.random.default_rng(seed).normal(size=(PROJECTIONS, x.shape[1]))
    return [float(stats.ks_2samp(x @ direction, y @ direction).pvalue) for direction in directions]


def _product_p_values(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the difference of means of y_i y_j in one coordinate and y_i^2 y_j^2 in two different ones, by its standard error."""

    def products(z: np.ndarray) -> np.ndarray:
        n, square = z.shape[2], z**2
        both = np.einsum("mic,mjc->mij", z, z) / n
        if n > 1:
            across = np.einsum("mi,mj->mij", square.sum(2), square.sum(2)) - np.einsum("mic,mjc->mij", square, square)
            both = np.concatenate([both, across / (n * (n - 1))], axis=1)
        return both.reshape(len(z), -1)

    a, b = products(x), products(y)
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    gap = np.abs(a.mean(axis=0) - b.mean(axis=0))
    return 2 * stats.norm.sf(gap[error > 0] / error[error > 0])


def _smallest(p_values: Any) -> float:
    """The smallest of several p-values, times their number (Bonferroni)."""
    return float(min(1.0, len(p_values) * min(p_values, default=1.0)))


def moments(evaluate: Callable, L: np.ndarray, L_prime: np.ndarray, size: int, seed: int = 0) -> dict[str, Any]:
    """Moments of outputs evaluate(p, Z) with p = L' z, Z = L z, by RQMC: name -> (value, error).

    mean, second_moments (output, output), excess_kurtosis about zero, and square_correlation: that of the squares of two
    coordinates of a network, which is not zero because they share p.
    """
    r, m = L_prime.shape[1], L.shape[1]

    @jax.jit
    def powers(normals: Any) -> Any:
        y = jax.vmap(lambda z: evaluate(L_prime @ z[:r], L @ z[r:].reshape(m, 2)).reshape(size, 2))(normals)
        second = (y[:, :, None] * y[:, None])[..., 0].reshape(-1, size**2)
        return jnp.mean(jnp.concatenate([y[..., 0], second, y[..., 0] ** 4, jnp.prod(y, axis=2) ** 2], axis=1), axis=0)

    def means(normals: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.mean([powers(z) for z in normals.T.reshape(-1, 2**rqmc.FIRST, r + 2 * m)], axis=0)

    rows = rqmc.gaussian_mean(means, np.eye(r + 2 * m), seed, ACCURACY, BUDGET)
    first, second, fourth, across = np.split(rows, np.cumsum([size, size**2, size]), axis=1)
    square = second[:, :: size + 1]
    found = {
        "mean": first,
        "second_moments": second.reshape(-1, size, size),
        "excess_kurtosis": fourth / square**2 - 3,
        "square_correlation": (across - square**2) / (fourth - square**2),
    }
    return {name: (values.mean(axis=0), rqmc.error(values)) for name, values in found.items()}
