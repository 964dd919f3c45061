"""Laws of a positive random variance as a few nodes: x = log v with weights w, so that E[g(v)] = sum_k w_k g(e^{x_k}).

Any measure is compressed to Gauss's nodes, which Lanczos's iteration finds (Golub and Welsch 1969) and which integrate
polynomials in log v up to degree 2 size - 1 exactly. Sums and products of independent variances are pairs of nodes, compressed
again. All of it has first derivatives: nodes move with the measure's mean velocity near them, its projection on the orthonormal
polynomials P_j, x_k' = sum_j P_j(x_k) E[P_j x'], and weights gain what their neighbours gain. (Second derivatives would need
the spread of velocities too.)
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

SIZE = 40  # nodes kept
SMALLER = 20  # nodes of a rule that tells the error of another
BINS = 2**10  # of a measure before Lanczos's iteration


class Nodes(NamedTuple):
    """A law of log v."""

    x: Float[Array | np.ndarray, "*row node"]
    w: Float[Array | np.ndarray, "*row node"]


def compress(x: Float[Array | np.ndarray, " n"], w: Float[Array | np.ndarray, " n"], size: int = SIZE) -> Nodes:
    """Gauss's nodes of the measure with weights w at x."""
    if isinstance(x, Tracer) or isinstance(w, Tracer):
        return _following(x, w, size)
    reduced = _binned(x, w) if len(x) > 2 * BINS else _filled(x, w, 2 * BINS)
    return as_numpy(_gauss(*reduced, size)[0])


def as_numpy(tree: Any) -> Any:
    """JAX arrays as NumPy's, unless they are being traced: what is small and at hand need not be compiled for."""
    return jax.tree.map(lambda x: x if isinstance(x, Tracer) or not isinstance(x, jax.Array) else np.asarray(x)[()], tree)


def _following(x: Any, w: Any, size: int) -> Nodes:
    """As `compress`, with nodes and weights that follow a measure that is being differentiated."""
    points, weights = (jax.lax.stop_gradient(a) for a in (x, w))
    total = weights.sum()
    velocity, gain = weights / total * (x - points), w - weights
    if len(x) > 2 * BINS:
        found, basis = _gauss(*_binned(points, weights), size)
        moved, gained = _projections((points - basis.centre) / basis.spread, (velocity, gain), basis)
    else:
        found, basis = _gauss(points, weights, size)
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


@partial(jax.jit, static_argnames=("size",))
def _gauss(x: Array, w: Array, size: int) -> tuple[Nodes, Basis]:
    """Nodes, and the polynomials whose zeros they are."""
    total = w.sum()
    centre = w @ x / total
    spread = jnp.abs(x - centre).max() + jnp.finfo(x.dtype).tiny
    alpha, beta, on_points = _lanczos((x - centre) / spread, w / total, size)
    nodes, vectors = jnp.linalg.eigh(jnp.diag(alpha) + jnp.diag(beta, 1) + jnp.diag(beta, -1))
    return Nodes(centre + spread * nodes, total * vectors[0] ** 2), Basis(alpha, beta, vectors, on_points, centre, spread)


def _filled(x: Any, w: Any, size: int) -> tuple[Any, Any]:
    """The measure with empty points added."""
    xp: Any = jnp if isinstance(x, Tracer) or isinstance(w, Tracer) else np
    room = size - len(x)
    return xp.concatenate([x, xp.full(room, x[0])]), xp.concatenate([w, xp.zeros(room)])


def add(a: Nodes, b: Nodes, size: int = SIZE) -> Nodes:
    """The law of the sum of two independent variances."""
    return _combine(jnp.logaddexp, a, b, size)


def multiply(a: Nodes, b: Nodes, size: int = SIZE) -> Nodes:
    """The law of the product of two independent variances."""
    return _combine(jnp.add, a, b, size)


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
    xp: Any = jnp if any(isinstance(leaf, Tracer) for row in rows for leaf in row) else np
    return Nodes(*(xp.stack(arrays) for arrays in zip(*filled, strict=True)))


def _combine(operation: Callable, a: Nodes, b: Nodes, size: int) -> Nodes:
    if any(isinstance(leaf, Tracer) for leaf in (*a, *b)):
        return _following(*_pairs(operation, a, b), size)
    return as_numpy(_combined(operation, a, b, size))


def _pairs(operation: Callable, a: Nodes, b: Nodes) -> tuple[Any, Any]:
    return operation(a.x[:, None], b.x[None]).ravel(), (a.w[:, None] * b.w[None]).ravel()


@partial(jax.jit, static_argnames=("operation", "size"))
def _combined(operation: Callable, a: Nodes, b: Nodes, size: int) -> Nodes:
    x, w = _pairs(operation, a, b)
    return _gauss(*(_binned(x, w) if len(x) > 2 * BINS else (x, w)), size)[0]


@jax.jit
def leaving_one_out(x: Float[Array | np.ndarray, "R N"]) -> tuple[Array, Array]:
    """Of R equal parts of a sample, in bins: points and weights of all of them, then of all but each one, in rows."""
    low, high = x.min(), x.max()
    parts = jax.vmap(lambda part: _bins(part, jnp.full(len(part), 1 / x.size), low, high))(x)
    rows = parts.sum(axis=0) - jnp.concatenate([jnp.zeros_like(parts[:1]), parts])
    points, weights = jax.vmap(lambda bins: _points(bins, low, high))(rows)
    return points, weights / weights.sum(axis=1, keepdims=True)


@jax.jit
def _binned(x: Array, w: Array) -> tuple[Array, Array]:
    """Two points a bin with the bin's mass, mean and variance."""
    low, high = x.min(), x.max()
    return _points(_bins(x, w, low, high), low, high)


def _bins(x: Array, w: Array, low: Array, high: Array) -> Float[Array, "3 bins"]:
    """Mass and first two moments about their centres of equal bins between low and high."""
    position = (x - low) / jnp.maximum(high - low, jnp.finfo(x.dtype).tiny) * BINS
    index = jnp.clip(position.astype(int), 0, BINS - 1)
    within = position - index - 0.5
    return jnp.stack([jax.ops.segment_sum(w * within**k, index, BINS) for k in range(3)])


def _points(bins: Float[Array, "3 bins"], low: Array, high: Array) -> tuple[Array, Array]:
    mass, first, second = bins
    full = mass > 1e-18 * mass.sum()  # less is rounding
    safe = jnp.where(full, mass, 1)
    mean = jnp.where(full, first, 0) / safe
    sd = jnp.sqrt(jnp.maximum(jnp.where(full, second, 0) / safe - mean**2, 0))
    centre = jnp.arange(BINS) + 0.5 + mean
    points = low + (high - low) * jnp.concatenate([centre - sd, centre + sd]) / BINS
    return points, jnp.tile(jnp.where(full, mass, 0), 2) / 2


def _lanczos(x: Array, w: Array, size: int) -> tuple[Array, Array, Array]:
    """Recurrence coefficients of the orthonormal polynomials, fully orthogonalised; zero beyond the measure's own size."""
    tiny = 1e-9  # of a measure with more points coefficients are a fraction of its spread

    def step(j: Array, state: tuple) -> tuple:
        Q, alpha, beta = state
        q = Q[j]
        a = q @ (x * q)
        rest = x * q
        for _ in range(2):
            rest = rest - Q.T @ (Q @ rest)
        b = jnp.linalg.norm(rest)
        go_on = b > tiny
        following = jnp.where(go_on, rest / jnp.where(go_on, b, 1), 0)
        return Q.at[j + 1].set(following), alpha.at[j].set(a), beta.at[j].set(jnp.where(go_on, b, 0))

    Q = jnp.zeros((size + 1, len(x)), x.dtype).at[0].set(jnp.sqrt(w))
    Q, alpha, beta = jax.lax.fori_loop(0, size, step, (Q, jnp.zeros(size, x.dtype), jnp.zeros(size, x.dtype)))
    return alpha, beta[:-1], Q[:-1]


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
