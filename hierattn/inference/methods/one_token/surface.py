"""The log likelihood of one token's outputs, all networks together, as a surface over log score_scale and s = 2 log omega.

    L(q, s) = sum_m F_q(log t_m - s) - n s / 2

with F_q of `variances`. Sums of squares t are shared out to a lattice by Lagrange's cubic, which leaves sums of smooth
functions as they are: any number of networks costs the same. L is summed up at lattice points (log q, s) and interpolated.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.sparse import csr_array

from hierattn.inference.methods.one_token.variances import Table

STEP = 0.025  # of the lattice in log t, for up to COORDINATES; it falls as n^{-1/2} for more
COORDINATES = 64
STRIDE = 2  # steps of the lattice in s
DEEPEST = 20.0  # log of the mean of t over the smallest t that counts: F is flat below
DEGREE = 5
CHUNK = 2**19  # numbers held at once, beside those that are returned: they stay in the cache


class Squares(NamedTuple):
    """Sums of squares of networks' n coordinates, as weights at log t = step (first + 0, 1, ...); their mean, log (t / n)."""

    step: float
    first: int
    weights: Float[np.ndarray, " B"]
    n: int
    log_variance: float

    @property
    def networks(self) -> float:
        """How many."""
        return float(self.weights.sum())

    def range_s(self, nats: float) -> tuple[float, float]:
        """Where log likelihoods may be less than so many nats below their maximum, if n coordinates tell what 10 would."""
        information = self.networks * min(self.n, 10)
        below, above = min((8 * nats / information) ** 0.5, 4.0), min((16 * nats / information) ** 0.5, 12.0)
        return self.log_variance - below, self.log_variance + above


class Surface(NamedTuple):
    """L as splines: by all scores, by each half of them, and with every second score_scale left out; log E[v | q]."""

    log_q: np.ndarray
    s: np.ndarray
    splines: tuple[RectBivariateSpline, ...]
    log_mean: CubicSpline
    flat: bool

    def log_likelihood(self, x: Any, s: Any, which: int = 0, grid: bool = False) -> np.ndarray:
        """At log q = x; beyond the lattice the law of v / E[v] varies no more."""
        return self.splines[which](np.clip(x, self.log_q[0], self.log_q[-1]), s, grid=grid)

    def log_o(self, x: Any, s: Any) -> np.ndarray:
        """Log value_scale; beyond the lattice E[v] goes on as a power of q."""
        inside = np.clip(x, self.log_q[0], self.log_q[-1])
        return (s - self.log_mean(inside) - self.log_mean(inside, 1) * (x - inside)) / 2


def squares(t: Float[np.ndarray, " network"], n: int) -> Squares:
    """Sums of squares, reduced."""
    x, first = _positions(t, n)
    return Squares(_step(n), first, sharing(x).sum(axis=0), n, float(np.log(np.mean(t) / n)))


def expected_squares(table: Table, g: int, like: Squares) -> Squares:
    """What as many networks of the law at the table's g-th score_scale are expected to have, with omega = 1."""
    first, last = (int(x / like.step) for x in (-DEEPEST, np.log(like.n) + 4))
    tau = like.step * np.arange(first, last)
    log_density = Table(table.log_q[[g]], table.log_mean[[g]], tuple((half[g],) for half in table.halves), table.n)
    log_w = log_density.log_densities(tau)[0, 0] + like.n / 2 * tau
    w = np.exp(log_w - log_w.max())
    inside = np.flatnonzero(w > 1e-12)
    w = w[inside[0] : inside[-1] + 1]
    return Squares(like.step, first + int(inside[0]), like.networks * w / w.sum(), like.n, 0.0)


def surface(table: Table, data: Squares, low: float, high: float) -> Surface:
    """L for s from low to high."""
    spacing, B = STRIDE * data.step, len(data.weights)
    index = np.arange(int(np.floor(low / spacing)) - DEGREE, int(np.ceil(high / spacing)) + DEGREE + 1)
    s, shifts = spacing * index, STRIDE * (index[-1] - index)
    tau = data.step * (data.first - STRIDE * index[-1] + np.arange(B + shifts[0]))
    F = table.log_densities(tau)
    used = np.flatnonzero(data.weights)
    L = np.stack([F[..., shift + used] @ data.weights[used] for shift in shifts], axis=-1)
    L -= data.n / 2 * data.networks * s
    splines = [RectBivariateSpline(table.log_q, s, values, kx=DEGREE, ky=DEGREE) for values in L]
    splines.append(RectBivariateSpline(table.log_q[::2], s, L[0, ::2], kx=DEGREE, ky=DEGREE))
    flat = bool(np.ptp(L[0], axis=0).max() <= 1e-9 * np.abs(L).max())
    return Surface(table.log_q, s, tuple(splines), CubicSpline(table.log_q, table.log_mean), flat)


def log_likelihoods(
    table: Table, t: Float[np.ndarray, " network"], q: Float[np.ndarray, " draw"], o: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, "draw network"]:
    """Of every network, at every pair of scales: F_q interpolated in log q and log t, some draws at a time."""
    (x, first), step, log_mean = _positions(t, table.n), _step(table.n), CubicSpline(table.log_q, table.log_mean)
    inside = np.clip(np.log(q), table.log_q[0], table.log_q[-1])
    s = 2 * np.log(o) + log_mean(inside) + log_mean(inside, 1) * (np.log(q) - inside)
    shares = sharing(x)
    log_t = step * (first + np.arange(shares.shape[1]))
    tau = np.arange(log_t[0] - s.max() - step, log_t[-1] - s.min() + 2 * step, step)
    rows = table.log_densities(tau)[0]
    found = np.empty((len(q), len(t)))
    for part in np.array_split(np.arange(len(q)), 1 + found.size // CHUNK):
        on_lattice = np.empty((len(log_t), len(part)))
        for column, i in enumerate(part):
            near, weights = _neighbours((inside[i] - table.log_q[0]) / (table.log_q[1] - table.log_q[0]), len(rows))
            on_lattice[:, column] = CubicSpline(tau, weights @ rows[near])(log_t - s[i]) - table.n / 2 * s[i]
        found[part] = (shares @ on_lattice).T
    return found


def _step(n: int) -> float:
    return STEP * min(1.0, (COORDINATES / n) ** 0.5)


def _positions(t: Float[np.ndarray, " network"], n: int) -> tuple[Float[np.ndarray, " network"], int]:
    """Of log t on the lattice, counted from its first point, and that point."""
    x = np.log(np.maximum(t, np.exp(np.log(np.mean(t)) - DEEPEST))) / _step(n)
    first = int(np.floor(x.min())) - 1
    return x - first, first


def sharing(x: Float[np.ndarray, " N"]) -> csr_array:
    """The matrix (N, B) that takes a function from 0, 1, 2, ... to points x >= 1, by Lagrange's cubic."""
    i = np.floor(x).astype(int)
    f = x - i
    cubics = [f * (f - 1) * (2 - f) / 6, (f + 1) * (f - 1) * (f - 2) / 2, (f + 1) * f * (2 - f) / 2, (f + 1) * f * (f - 1) / 6]
    columns = i[:, None] + np.arange(-1, 3)
    ends = np.arange(0, columns.size + 1, 4)
    return csr_array((np.stack(cubics, axis=1).ravel(), columns.ravel(), ends), shape=(len(x), int(i.max()) + 3))


def _neighbours(position: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Six lattice points around a position and their weights in Lagrange's interpolation."""
    near = np.clip(int(position) - 2, 0, size - 6) + np.arange(6)
    apart = near[:, None] - near + np.eye(6)
    factors = np.where(np.eye(6, dtype=bool), 1.0, (position - near) / apart)
    return near, factors.prod(axis=1)
