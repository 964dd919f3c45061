"""Statistical assertions under one budget: all seeds are fixed, so a failure is a bug and not weather.

With some 300 comparisons in the suite and a level of 1e-6 each, a suite of correct code written with fresh seeds would fail
once in 3,000 times.
"""

import numpy as np
from scipy import stats

LEVEL = 1e-6
SIGMAS = float(stats.norm.isf(LEVEL / 2))  # 4.9


def same_distribution(x, y) -> bool:
    """Two-sample Kolmogorov-Smirnov. At 50,000 draws a side it sees a distance of about 0.017 between distributions."""
    return stats.ks_2samp(np.ravel(x), np.ravel(y)).pvalue > LEVEL


def follows(x, cdf) -> bool:
    """One-sample Kolmogorov-Smirnov."""
    return stats.kstest(np.ravel(x), cdf).pvalue > LEVEL


def within(estimate, truth, standard_error) -> bool:
    """Every entry of the estimate within SIGMAS standard errors of the truth."""
    return bool(np.all(np.abs(np.asarray(estimate) - truth) <= SIGMAS * np.asarray(standard_error)))


def mean_agrees(x, truth) -> bool:
    """The mean of x over its first axis (networks) against the truth, by its standard error."""
    x = np.asarray(x, float)
    return within(x.mean(axis=0), truth, x.std(axis=0, ddof=1) / np.sqrt(len(x)))


def same_means(x, y) -> bool:
    """Means of two independent samples, first axis networks."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    error = np.sqrt(x.var(axis=0, ddof=1) / len(x) + y.var(axis=0, ddof=1) / len(y))
    return within(x.mean(axis=0), y.mean(axis=0), error)


def same_second_moments(x, y) -> bool:
    """E[x_i x_j] of two independent samples, first axis networks: as `same_means` of all products, which are never made."""
    x, y = (np.asarray(z, float).reshape(len(z), -1) for z in (x, y))
    (mean_x, error_x), (mean_y, error_y) = (
        (z.T @ z / len(z), ((z**2).T @ z**2 / len(z) - (z.T @ z / len(z)) ** 2) / (len(z) - 1)) for z in (x, y)
    )
    return within(mean_x, mean_y, np.sqrt(error_x + error_y))


def same_joint_law(x, y, rng) -> bool:
    """Outputs (network, token, coordinate) of two samples: all marginals, random projections, second and fourth products.

    One statistic a network each, because networks are the independent units.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    flat_x, flat_y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    directions = rng.normal(size=(8, flat_x.shape[1]))
    columns = np.concatenate([np.eye(flat_x.shape[1]), directions])
    marginals = all(same_distribution(flat_x @ c, flat_y @ c) for c in columns)

    def products(z):
        n, square = z.shape[-1], z**2
        second = np.einsum("mic,mjc->mij", z, z) / n
        across = np.einsum("mi,mj->mij", square.sum(-1), square.sum(-1)) - np.einsum("mic,mjc->mij", square, square)
        return np.concatenate([second, across / max(n * (n - 1), 1)], axis=1).reshape(len(z), -1)

    return marginals and same_means(products(x), products(y))
