"""Expectations by randomised quasi-Monte Carlo: one Sobol net under independent random digital shifts.

Every shift gives an unbiased estimate, independent of the others, so their spread is an honest error whatever the integrand.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from hierattn.base.errors import unusable

SHIFTS = 16
COVER = 4.0  # standard errors in a stated error: Student's t with 15 degrees of freedom exceeds it once in 900
FIRST = 9  # log2 of the first number of points
BUDGET = 2**27  # numbers used at most, over all shifts
BLOCK = 2**16  # numbers held by a block of points
BITS = 30

Statistics = Callable[[np.ndarray], np.ndarray]


def expectations(
    f: Statistics, dim: int, seed: int, enough: Callable[[np.ndarray], bool], budget: int | None = None
) -> np.ndarray:
    """Means of f over uniforms in (0, 1)^dim, one row a shift; points are doubled until `enough` of these rows.

    f takes points (N, dim), N a power of two and at least 2^FIRST, and returns the means of its statistics over them.
    """
    from scipy.stats import qmc  # 40 MB and half a second that others need not spend

    budget = BUDGET if budget is None else budget
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise unusable("seed", "a whole number that is not negative", repr(seed))
    rng = np.random.default_rng(seed)
    shifts = rng.integers(0, 2**BITS, (SHIFTS, dim), np.uint32)
    net = qmc.Sobol(dim, bits=BITS, rng=rng) if dim <= qmc.Sobol.MAXDIM else None

    def more(points: int) -> np.ndarray:
        """Means over further points, taken in blocks that stay in the cache."""
        block = min(points, max(2**FIRST, 2 ** int(np.log2(BLOCK / dim))))
        total = np.zeros(())
        for _ in range(points // block):
            corner = rng.random((block, dim)) if net is None else net.random(block)
            cells = (corner * 2**BITS).astype(np.uint32)
            total = total + np.stack(list(pool.map(lambda shift: f(((cells ^ shift) + 0.5) * 2.0**-BITS), shifts)))  # noqa: B023
        return total / (points // block)

    with threadpool_limits(1, "blas"), ThreadPoolExecutor() as pool:  # threads of our own: BLAS must not fight with them
        points = 2**FIRST
        means = more(points)
        while not enough(means) and 2 * points * SHIFTS * dim <= budget:
            means, points = (means + more(points)) / 2, 2 * points
    return means


def gaussian_mean(f: Statistics, L: np.ndarray, seed: int, accuracy: float, budget: int) -> np.ndarray:
    """Means of f over N(0, L L'), one row a shift; points are doubled until the error of all is `accuracy` of the largest.

    f takes points (token, N) and returns the means of its statistics over them.
    """

    def enough(rows: np.ndarray) -> bool:
        return bool(np.all(error(rows) <= accuracy * np.abs(rows.mean(axis=0)).max()))

    return expectations(lambda uniforms: f(L @ ndtri(uniforms).T), L.shape[1], seed, enough, budget)


def error(x: np.ndarray) -> Any:
    """Stated error of the mean of x over shifts (axis 0)."""
    return COVER * x.std(axis=0, ddof=1) / np.sqrt(len(x))


def normal_points(shape: tuple[int, ...], count: int, seed: int = 0) -> np.ndarray:
    """Fixed quasi-random standard normals (count, *shape), for averages that are smooth in the parameters."""
    from scipy.stats import qmc

    dim, rng = math.prod(shape), np.random.default_rng(seed)
    if dim > qmc.Sobol.MAXDIM:
        return rng.normal(size=(count, *shape))
    uniforms = (qmc.Sobol(dim, bits=BITS, rng=rng).random(count) * 2**BITS + 0.5) * 2.0**-BITS
    return ndtri(uniforms).reshape(count, *shape)
