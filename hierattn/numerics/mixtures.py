"""Laws of a positive random variance as a few nodes: x = log v with weights w, so that E[g(v)] = sum_k w_k g(e^{x_k}).

Any measure is compressed to Gauss's nodes, which Lanczos's iteration finds (Golub and Welsch 1969) and which integrate
polynomials in log v up to degree 2 size - 1 exactly. Sums and products of independent variances are pairs of nodes, compressed
again. All of it has first derivatives: nodes move with the measure's mean velocity near them, its projection on the orthonormal
polynomials P_j, x_k' = sum_j P_j(x_k) E[P_j x'], and weights gain what their neighbours gain. (Second derivatives would need
the spread of velocities too.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.tracing import as_numpy, traced

SIZE = 40  # nodes kept
SMALLER = 20  # nodes of a rule that tells the error of another
BINS = 2**10  # of a measure before Lanczos's iteration
LARGE = 2**18  # numbers for whose functions it pays to compile


class Nodes(NamedTuple):
    """A law of log v."""

    x: Float[Array | np.ndarray, "*row node"]
    w: Float[Array | np.ndarray, "*row node"]


def compress(x: Float[Array | np.ndarray, " n"], w: Float[Array | np.ndarray, " n"], size: int = SIZE) -> Nodes:
    """Gauss's nodes of the measure with weights w at x."""
    if traced(x, w):
        return _following(x, w, size)
    x, w = as_numpy((x, w))
    x, w = _binned(x, w) if len(x) > 2 * BINS else (x, w)
    return _gauss(x, w, size)[0]


def _following(x: Any, w: Any, size: int) -> Nodes:
    """As `compress`, with nodes and weights that follow a measure that is being differentiated."""
    points, weights = (jax.lax.stop_gradient(a) for a in (x, w))
    total = weights.sum()
    velocity, gain = weights / total * (x - points), w - weights
    if len(x) > 2 * BINS:
        found, basis = _gauss_compiled(*_binned_compiled(points, weights), size)
        moved, gained = _projections((points - basis.centre) / basis.spread, (velocity, gain), basis)
    else:
        found, basis = _gauss_compiled(points, weights, size)
        root = jnp.sqrt(jnp.where(weights > 0, weights / total, 1))
        moved, gained = jnp.stack([velocity / root, gain / root]) @ basis.on_points.T
    filled = jnp.abs(basis.vectors[0]) > 1e-12
    P = jnp.where(filled, basis.vectors / jnp.where(filled, basis.vectors[0], 1), 0)  # P_j(x_k)
    return Nodes(found.x + P.T @ moved, found.w + basis.vectors[0] ** 2 * (P.T @ gained))


class Basis(NamedTuple):
    """Orthonormal polynomials P_j in (x - centre) / spread.

    Recurrence coefficients alpha and beta, eigenvectors of their matrix, and sqrt(w_i) P_j(x_i) at the points.
    """

    alpha: Array
    beta: Array
    vectors: Array
    on_points: Array
    centre: Array
    spread: Array


def _gauss(x: Any, w: Any, size: int) -> tuple[Nodes, Basis]:
    """Nodes, and the polynomials whose zeros they are."""
    xp: Any = jnp if traced(x, w) else np
    total = w.sum()
    centre = w @ x / total
    spread = abs(x - centre).max() + np.finfo(x.dtype).tiny
    alpha, beta, on_points = _lanczos((x - centre) / spread, w / total, size)
    nodes, vectors = xp.linalg.eigh(xp.diag(alpha) + xp.diag(beta, 1) + xp.diag(beta, -1))
    return Nodes(centre + spread * nodes, total * vectors[0] ** 2), Basis(alpha, beta, vectors, on_points, centre, spread)


def _filled(x: Any, w: Any, size: int) -> tuple[Any, Any]:
    """The measure with empty points added."""
    xp: Any = jnp if traced(x, w) else np
    room = size - len(x)
    return xp.concatenate([x, xp.full(room, x[0])]), xp.concatenate([w, xp.zeros(room)])


def add(a: Nodes, b: Nodes, size: int = SIZE) -> Nodes:
    """The law of the sum of two independent variances."""
    return _combine("logaddexp", a, b, size)


def multiply(a: Nodes, b: Nodes, size: int = SIZE) -> Nodes:
    """The law of the product of two independent variances."""
    return _combine("add", a, b, size)


def sum_of(a: Nodes, count: int, size: int = SIZE) -> Nodes:
    """The law of the sum of `count` independent variances of one law, by doubling."""
    if count == 1:
        return a
    half = sum_of(a, count // 2, size)
    double = add(half, half, size)
    return add(double, a, size) if count % 2 else double


def stack(rows: list[Nodes]) -> Nodes:
    """Laws side by side; those with fewer nodes are filled up with empty ones."""
    size = max(len(row.x) for row in rows)
    filled = [row if len(row.x) == size else Nodes(*_filled(*row, size)) for row in rows]
    xp: Any = jnp if any(traced(*row) for row in rows) else np
    return Nodes(*(xp.stack(arrays) for arrays in zip(*filled, strict=True)))


def _combine(operation: str, a: Nodes, b: Nodes, size: int) -> Nodes:
    """Of all pairs of nodes."""
    xp: Any = jnp if traced(*a, *b) else np
    a, b = as_numpy((a, b))
    return compress(getattr(xp, operation)(a.x[:, None], b.x[None]).ravel(), (a.w[:, None] * b.w[None]).ravel(), size)


def leaving_one_out(x: Float[np.ndarray, "R N"]) -> tuple[np.ndarray, np.ndarray]:
    """Of R equal parts of a sample, in bins: points and weights of all of them, then of all but each one, in rows."""
    low, high, weight = x.min(), x.max(), np.full(x.shape[1], 1 / x.size)
    parts = np.stack([_bins(part, weight, low, high) for part in x])
    rows = parts.sum(axis=0) - np.concatenate([np.zeros_like(parts[:1]), parts])
    points, weights = (np.stack(arrays) for arrays in zip(*(_points(bins, low, high) for bins in rows), strict=True))
    return points, weights / weights.sum(axis=1, keepdims=True)


def _binned(x: Any, w: Any) -> tuple[Any, Any]:
    """Two points a bin with the bin's mass, mean and variance."""
    low, high = x.min(), x.max()
    return _points(_bins(x, w, low, high), low, high)


def _bins(x: Any, w: Any, low: Any, high: Any) -> Float[Array | np.ndarray, "3 bins"]:
    """Mass and first two moments about their centres of equal bins between low and high."""
    xp: Any = jnp if traced(x, w) else np
    position = (x - low) / xp.maximum(high - low, np.finfo(x.dtype).tiny) * BINS
    index = xp.clip(position.astype(int), 0, BINS - 1)
    within = position - index - 0.5
    length = {"length": BINS} if xp is jnp else {"minlength": BINS}
    return xp.stack([xp.bincount(index, w * within**k, **length) for k in range(3)])


def _points(bins: Any, low: Any, high: Any) -> tuple[Any, Any]:
    xp: Any = jnp if traced(bins) else np
    mass, first, second = bins
    full = mass > 1e-18 * mass.sum()  # less is rounding
    safe = xp.where(full, mass, 1)
    mean = xp.where(full, first, 0) / safe
    sd = xp.sqrt(xp.maximum(xp.where(full, second, 0) / safe - mean**2, 0))
    centre = xp.arange(BINS) + 0.5 + mean
    points = low + (high - low) * xp.concatenate([centre - sd, centre + sd]) / BINS
    return points, xp.tile(xp.where(full, mass, 0), 2) / 2


def _lanczos(x: Any, w: Any, size: int) -> tuple[Any, Any, Any]:
    """Recurrence coefficients of the orthonormal polynomials, fully orthogonalised; zero beyond the measure's own size."""
    xp: Any = jnp if traced(x, w) else np

    def following(Q: Any, j: Any) -> tuple[Any, Any, Any]:
        """The polynomial after the j-th, and its two coefficients."""
        q = Q[j]
        rest = x * q
        a = q @ rest
        for _ in range(2):
            rest = rest - (Q @ rest) @ Q
        b = xp.sqrt(rest @ rest)
        go_on = b > 1e-9  # of a measure with more points coefficients are a fraction of its spread
        return xp.where(go_on, rest / xp.where(go_on, b, 1), 0), a, xp.where(go_on, b, 0)

    def step(j: Any, state: tuple) -> tuple:
        Q, alpha, beta = state
        q, a, b = following(Q, j)
        return Q.at[j + 1].set(q), alpha.at[j].set(a), beta.at[j].set(b)

    Q, alpha, beta = xp.zeros((size + 1, len(x)), x.dtype), xp.zeros(size, x.dtype), xp.zeros(size, x.dtype)
    if xp is jnp:
        Q, alpha, beta = jax.lax.fori_loop(0, size, step, (Q.at[0].set(jnp.sqrt(w)), alpha, beta))
    else:
        Q[0] = np.sqrt(w)
        for j in range(size):
            Q[j + 1], alpha[j], beta[j] = following(Q[: j + 1], j)
    return alpha, beta[:-1], Q[:-1]


_gauss_compiled, _binned_compiled = jax.jit(_gauss, static_argnames="size"), jax.jit(_binned)  # once for equal shapes


@jax.jit
def _projections(x: Array, measures: tuple[Array, ...], basis: Basis) -> Float[Array, "measure size"]:
    """Integrals of the polynomials over measures on other points x, by their recurrence."""
    on_x = jnp.stack(measures)

    def step(state: tuple, coefficients: tuple) -> tuple:
        before, now = state
        a, b_before, b = coefficients
        following = jnp.where(b > 0, ((x - a) * now - b_before * before) / jnp.where(b > 0, b, 1), 0)
        return (now, following), on_x @ now

    betas = jnp.concatenate([jnp.zeros(1, x.dtype), basis.beta, jnp.zeros(1, x.dtype)])
    return jax.lax.scan(step, (jnp.zeros_like(x), jnp.ones_like(x)), (basis.alpha, betas[:-1], betas[1:]))[1].T
