"""One token's likelihood with the scores integrated out, as a function of both scales.

    p(t | q, o) = E[(2 pi o^2 v)^{-n/2} exp(-t / (2 o^2 v))],    v ~ the token's conditional variance at score_scale q

for the sum of squares t of n coordinates (THEORY section 4). The law of v is found on a lattice in log q from fixed quasi-
random scores, whatever the data, and kept. Parameters are q and the total variance omega^2 = o^2 E[v | q], which hardly depend
on each other: the likelihood is F_q(log t - 2 log omega) - n log omega, smooth in all its arguments, so that lattices suffice.
Scores come in two independent halves, whose disagreement tells the error.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from hierattn.base.errors import unusable
from hierattn.law.law import Law
from hierattn.law.row import Row, coupled, root, row_of
from hierattn.layer.architecture import Architecture
from hierattn.layer.weighing import Weighing
from hierattn.numerics.chi_square import log_nodes, quantile
from hierattn.numerics.rqmc import normal_points

STEP = 0.1  # of the lattice in log q
BEYOND = 6  # lattice points on either side of what is asked for: splines end there
NARROWEST, WIDEST = -4.0, 7.0  # log spread of scores, beyond which the law of v has reached its limits
HALVES = 2
POINTS, MOST_POINTS = 2**15, 2**18  # scores of a half, for up to COORDINATES and for more
COORDINATES = 64
MOST_BINS = 2**10
DEEPEST = 60.0  # log v below its maximum that is kept
CELLS, FINE, TAILS = 2**12, 64, 40.0  # of a sum of heads: cells, cells in a standard deviation, standard deviations
ROUNDING = 1e-15

Nodes = tuple[np.ndarray, np.ndarray]  # log v, weights


class Token(NamedTuple):
    """What the law of v depends on but for score_scale, hashable: arrays of `Row` as bytes."""

    structure: Any
    shapes: tuple
    numbers: tuple
    head_dim: int | None
    score_factor: float
    n: int

    @classmethod
    def of(cls, row: Row, layer: Architecture, n: int) -> "Token":
        """Of n coordinates of a token that sees this row."""
        leaves, structure = jax.tree.flatten(row)
        arrays = [np.ascontiguousarray(x, float) for x in leaves]
        shapes, numbers = tuple(np.shape(x) for x in leaves), tuple(x.tobytes() for x in arrays)
        return cls(structure, shapes, numbers, layer.head_dim, layer.score_factor, int(n))

    @property
    def row(self) -> Row:
        """What the token sees."""
        arrays = (np.frombuffer(x).reshape(shape) for x, shape in zip(self.numbers, self.shapes, strict=True))
        return jax.tree.unflatten(self.structure, arrays)

    @property
    def root(self) -> np.ndarray:
        """R with covariance R R' of the token's scores at score_scale 1."""
        return self.score_factor * root(self.row.C, self.row.weighing)


class Table(NamedTuple):
    """The law of v at the lattice's score scales: log E[v], and by each half nodes of log (v / E[v])."""

    log_q: Float[np.ndarray, " G"]
    log_mean: Float[np.ndarray, " G"]
    halves: tuple[tuple[Nodes, ...], ...]
    n: int

    def log_densities(self, tau: Float[np.ndarray, " B"]) -> Float[np.ndarray, "3 G B"]:
        """F_q(tau) = log E[(2 pi v / E v)^{-n/2} exp(-e^tau E[v] / (2 v))], by all scores and by each half of them."""
        power = np.exp(np.minimum(tau, 600.0))[:, None] / 2

        def by_nodes(nodes: Nodes) -> np.ndarray:
            x, w = nodes
            terms = np.log(w) - self.n / 2 * (x + np.log(2 * np.pi)) - power * np.exp(-x)
            top = terms.max(axis=1)
            return top + np.log(np.exp(terms - top[:, None]).sum(axis=1))

        with ThreadPoolExecutor() as pool:
            first, second = (np.array(list(pool.map(by_nodes, half))) for half in self.halves)
        return np.stack([np.logaddexp(first, second) - np.log(2), first, second])


def table(law: Law, n: int, low: float, high: float) -> Table:
    """The law of the only token of `law` (scales 1) for n coordinates, at log q from low to high as far as it varies."""
    layer, row = law.layer, row_of(law, 0)
    if coupled(layer, row.K):
        raise unusable("layer", "at finite head_dim, heads that share nothing and no rotary embeddings", "others")
    token = Token.of(row, layer, n)
    spread = np.sqrt((token.root**2).sum(axis=1).max(initial=0))
    centre = -np.log(spread) if spread else 0.0
    first, last = (round(np.clip((x - centre) / STEP, NARROWEST / STEP, WIDEST / STEP)) for x in (low, high))
    lattice = np.arange(first - BEYOND, last + BEYOND + 1)
    log_q = centre + STEP * lattice
    with threadpool_limits(1, "blas"), ThreadPoolExecutor() as pool:
        laws = list(pool.map(lambda x: at_scale(token, float(np.exp(x)) if spread else 0.0), log_q))
    log_mean = np.log([np.mean([np.exp(x) @ w for x, w in halves]) for halves in laws])
    halves = tuple(tuple((x - m, w) for (x, w), m in zip(half, log_mean, strict=True)) for half in zip(*laws, strict=True))
    return Table(log_q, log_mean, halves, int(n))


@lru_cache(maxsize=2**10)
def at_scale(token: Token, q: float) -> tuple[Nodes, ...]:
    """Nodes of log v at one score_scale, by each half."""
    row, width, n_H = token.row, min(0.03, 0.2 * token.n**-0.5), token.head_dim  # a fraction of what n coordinates resolve
    every = [row.weighing.of_head(a) for a in range(len(row.weighing.added))]
    kinds, counts = {head.mark: head for head in every}, Counter(head.mark for head in every)
    found = []
    for p in scores(token):
        heads = []
        for weighing in kinds.values():
            x = _log_u(q * p, row.K, weighing.keys_first())
            nodes = binned(x, np.full(len(x), 1 / len(x)), width)
            if n_H is not None:
                c, w_c = log_nodes(n_H, 0.35)
                nodes = binned(np.add.outer(nodes[0], c).ravel(), np.multiply.outer(nodes[1], w_c).ravel(), width)
            heads.append(nodes)
        numbers = np.array([counts[mark] for mark in kinds])
        found.append(heads[0] if len(every) == 1 else binned(*_log_mean(heads, numbers), width))
    return tuple(found)


@lru_cache(maxsize=4)
def scores(token: Token) -> list[Float[np.ndarray, "m N"]]:
    """Quasi-random scores of one head for score_scale 1, in two halves. More coordinates resolve more of the law of v."""
    (m, d), n_H = token.root.shape, token.head_dim
    if not d:
        return [np.zeros((m, 1))] * HALVES
    points = int(np.clip(2 ** np.ceil(np.log2(POINTS / COORDINATES * token.n)), POINTS, MOST_POINTS))
    z = [normal_points((d + (n_H is not None),), points, seed).T for seed in range(HALVES)]
    p = [token.root @ half[:d] for half in z]
    if n_H is None:
        return p
    return [x * np.sqrt(quantile(ndtr(half[-1]), n_H)) for x, half in zip(p, z, strict=True)]


def _log_u(p: Float[np.ndarray, "m N"], K: np.ndarray, weighing: Weighing) -> Float[np.ndarray, " N"]:
    """Log of u = w K w' at every set of scores."""
    w = weighing.weights(p)
    u = np.sum(w * (K @ w), axis=0)
    if not u.max() > 0:
        raise unusable("kernel", "outputs that vary", "a token whose outputs are zero")
    return np.log(np.maximum(u, np.exp(-DEEPEST) * u.max()))


def binned(x: np.ndarray, w: np.ndarray, width: float) -> Nodes:
    """Two points a bin with the bin's mass, mean and variance."""
    low, spread = x.min(), np.ptp(x)
    if spread <= 1e-14:
        return np.array([w @ x / w.sum()]), np.ones(1)
    bins = int(np.clip(np.ceil(spread / width), 1, MOST_BINS))
    position = (x - low) * (bins / spread)
    index = np.minimum(position.astype(int), bins - 1)
    within = position - index - 0.5
    mass, first, second = (np.bincount(index, w * within**k, bins) for k in range(3))
    full = np.flatnonzero(mass > 0)
    mass, mean = mass[full], first[full] / mass[full]
    sd = np.sqrt(np.maximum(second[full] / mass - mean**2, 0))
    centre = full + 0.5 + mean
    return low + spread / bins * np.concatenate([centre - sd, centre + sd]), np.tile(mass, 2) / (2 * mass.sum())


def _log_mean(heads: list[Nodes], counts: np.ndarray) -> Nodes:
    """The mean of independent variances, so many of each law: Fourier transforms on one grid of cells are multiplied.

    Points are shared between the two cells beside them, which widens laws a little and is undone at the end.
    """
    v, w = [np.exp(x) for x, _ in heads], [w for _, w in heads]
    low, reach = np.array([x.min() for x in v]), counts @ [np.ptp(x) for x in v]
    mean = np.array([b @ x for x, b in zip(v, w, strict=True)])
    sd = np.sqrt(counts @ [b @ (x - m) ** 2 for x, b, m in zip(v, w, mean, strict=True)])
    if sd <= 1e-14 * (counts @ mean):
        return np.log([counts @ mean / counts.sum()]), np.ones(1)
    cell = max(reach / CELLS, sd / FINE)
    size = 2 ** int(np.ceil(np.log2(min(reach, TAILS * sd) / cell + 4)))
    transforms = [np.fft.rfft(_shared((x - a) / cell, b, size)) for x, b, a in zip(v, w, low, strict=True)]
    weight = np.fft.irfft(np.prod([f**c for f, c in zip(transforms, counts, strict=True)], axis=0), size)
    middle = counts @ (mean - low) / cell
    start = 0 if reach <= TAILS * sd else round(middle) - size // 2
    position = np.arange(start, start + size)
    weight = weight[position % size]
    keep = weight > ROUNDING * weight.max()
    weight, position = weight[keep] / weight[keep].sum(), position[keep] - middle
    total = counts @ mean + position * sd / np.sqrt(weight @ position**2)
    return np.log(np.maximum(total, 1e-30 * total.max()) / counts.sum()), weight


def _shared(position: np.ndarray, w: np.ndarray, size: int) -> np.ndarray:
    index = position.astype(int)
    upper = (position - index) * w
    return np.bincount(index % size, w - upper, size) + np.bincount((index + 1) % size, upper, size)
