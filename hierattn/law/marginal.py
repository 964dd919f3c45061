"""One token's outputs as a distribution: a Gaussian scale mixture y ~ N(0, v) (THEORY section 4).

    f(y) = E[N(y; 0, v)],    sf(y) = E[Phi(-y / sqrt v)],    E[y^2k] = (2k - 1)!! E[v^k]

The law of v is a few nodes (`mixtures`), found several times by rules that differ; what they disagree on is the error. Averages
of Gaussians over v, never a density estimate of y. All in float64, and differentiable in whatever the nodes were made of.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtr
from jaxtyping import Array

from hierattn.base.errors import unusable
from hierattn.base.float64 import in_float64
from hierattn.base.tracing import as_numpy, traced
from hierattn.law import one_token
from hierattn.law.sampling import Source
from hierattn.numerics import mixtures, rqmc, scale_mixture
from hierattn.numerics.mixtures import Nodes

BATCHES = 16  # of drawn networks
BIN = 1 / 512  # width of bins in log v for drawn variances
AT_ONCE = 2**15  # drawn variances put into bins at once
LOWEST, HIGHEST = -80, 60  # log v that bins can hold


class Marginal(NamedTuple):
    """The distribution of one token's outputs.

    - nodes: log v and weights, one row a rule; the first is used, the others tell its error
    - method: "closed form", "quadrature" (a finer and a coarser rule), "RQMC" or "Monte Carlo" (all parts, then all but one)
    - v_max: the largest v there can be (infinite where there is none)
    """

    nodes: Nodes
    method: str
    v_max: Any = math.inf

    def __repr__(self) -> str:
        if traced(*self.nodes):
            return f"Marginal(abstract, method={self.method!r})"
        return f"Marginal(variance={self.variance:.6g}, excess_kurtosis={self.excess_kurtosis:.6g}, method={self.method!r})"

    @in_float64
    def pdf(self, y: Any) -> Any:
        """Density."""
        return self._evaluate(scale_mixture.pdf, y)[0]

    @in_float64
    def logpdf(self, y: Any) -> Any:
        """Logarithm of the density."""
        return self._evaluate(scale_mixture.logpdf, y)[0]

    @in_float64
    def cdf(self, y: Any) -> Any:
        """P(y_i <= y)."""
        return self._evaluate(scale_mixture.cdf, y)[0]

    @in_float64
    def sf(self, y: Any) -> Any:
        """P(y_i > y)."""
        return self._evaluate(scale_mixture.sf, y)[0]

    @in_float64
    def logsf(self, y: Any) -> Any:
        """Log P(y_i > y), far into the tail."""
        return self._evaluate(scale_mixture.logsf, y)[0]

    @in_float64
    def ppf(self, q: Any) -> Any:
        """The quantile: cdf(ppf(q)) = q. Near q = 1 use isf."""
        return self._evaluate(scale_mixture.ppf, _probability(q, "q"))[0]

    @in_float64
    def isf(self, p: Any) -> Any:
        """The value exceeded with probability p, however small: sf(isf(p)) = p."""
        return self._evaluate(scale_mixture.isf, _probability(p, "p"))[0]

    @in_float64
    def moment(self, k: int) -> Any:
        """E[y^k]; zero for odd k."""
        if not isinstance(k, (int, np.integer)) or k < 0:
            raise unusable("k", "a whole number that is not negative", repr(k))
        return self._evaluate(scale_mixture.moment, k)[0]

    @property
    def variance(self) -> Any:
        """E[y^2] = E[v]."""
        return self.moment(2)

    @property
    @in_float64
    def excess_kurtosis(self) -> Any:
        """3 Var(v) / E[v]^2."""
        return self._evaluate(scale_mixture.excess_kurtosis, None)[0]

    @in_float64
    def tail_bound(self, t: Any) -> Any:
        """2 Phi(-t / sqrt(v_max)), which P(|y_i| > t) never exceeds."""
        if isinstance(self.v_max, float) and math.isinf(self.v_max):
            remedy = "a bound exists at infinite head_dim with softmax and given inputs"
            raise unusable("tail_bound", "a law with bounded conditional variance", "one without", remedy)
        return jnp.minimum(2 * ndtr(-jnp.asarray(t, float) / jnp.sqrt(self.v_max)), 1.0)

    @in_float64
    def error(self, function: str, at: Any = None) -> Any:
        """The error of pdf, logpdf, cdf, sf, logsf, ppf, isf (at a point), moment (of an order), or excess_kurtosis.

        Four standard errors, by the jackknife over independent parts; by quadrature four times the difference to a rule with
        1.3 times its step, which covers convergence as slow as the step.
        """
        if function not in scale_mixture.FUNCTIONS:
            raise unusable("function", "one of " + ", ".join(scale_mixture.FUNCTIONS), repr(function))
        rows = self._evaluate(scale_mixture.FUNCTIONS[function], at)
        if self.method in ("closed form", "quadrature"):
            return rqmc.COVER * abs(rows[0] - rows[-1])
        return rqmc.COVER * jackknife_error(rows[1:])

    def standard_error(self, function: str, at: Any = None) -> Any:
        """The standard error behind `error`; zero for what is not random."""
        return self.error(function, at) * (0 if self.method in ("closed form", "quadrature") else 1 / rqmc.COVER)

    @in_float64
    def each(self, function: str, at: Any = None) -> Any:
        """A function by every row of nodes (see `error`)."""
        return self._evaluate(scale_mixture.FUNCTIONS[function], at)

    def density_error(self) -> float:
        """The largest error of the density, relative to its peak."""
        with jax.enable_x64(True):
            y = np.linspace(0, 8, 81) * np.sqrt(self.variance)
            return float(self.error("pdf", y).max() / self.pdf(0.0))

    def _evaluate(self, function: Callable, at: Any) -> Any:
        """A function by every row of nodes: compiled where JAX traces or there is much to do, or else by NumPy."""
        at = at if at is None or traced(at) else np.asarray(at, float)
        rows = Nodes(*(a.reshape(len(a), *[1] * np.ndim(at), -1) for a in as_numpy(self.nodes)))
        if traced(*rows, at) or rows.x.size * np.size(at) > mixtures.LARGE:
            return as_numpy(_compiled(function, rows, at))
        with np.errstate(over="ignore"):  # densities far out are zero
            return function(rows, at)


def jackknife_error(rows: Any) -> Any:
    """Standard error of an estimate from its values without each one of R equal parts."""
    return rows.std(axis=0, ddof=1) * (len(rows) - 1) * len(rows) ** -0.5


@partial(jax.jit, static_argnums=0)
def _compiled(function: Callable, nodes: Nodes, at: Any) -> Array:
    return function(nodes, None if at is None else at.astype(float))


@in_float64
def from_draws(
    law: Source, token: int = 0, networks: int = 2**20, seed: int = 0, advance: Any = None, batches: int = BATCHES
) -> Marginal:
    """The distribution by Monte Carlo: conditional variances drawn in equal batches, of which only bins are kept."""
    if not isinstance(networks, (int, np.integer)) or networks < 2 * batches:
        raise unusable("networks", f"a whole number of at least {2 * batches}", repr(networks))
    size, bins = int(networks) // batches, np.zeros((batches, 3, round((HIGHEST - LOWEST) / BIN)))
    seen = 0
    with jax.enable_x64(False):
        for v in one_token.stream(law, jax.random.key(seed), size * batches, token):
            drawn = np.asarray(v)
            for batch, part in _batches_of(seen, drawn, size):
                for few in np.array_split(part, -(-len(part) // AT_ONCE)):
                    _count(bins[batch], few.astype(float))
            seen += len(drawn)
            if advance is not None:
                advance(len(drawn))
    rows = [_from_bins(bins.sum(axis=0) - left_out) for left_out in (0, *bins)]
    return Marginal(mixtures.stack(rows), "Monte Carlo")


def _batches_of(seen: int, drawn: np.ndarray, size: int) -> list[tuple[int, np.ndarray]]:
    """Cut draws, of which `seen` came before, at the ends of batches."""
    first, last = seen // size, (seen + len(drawn) - 1) // size
    cuts = [(b, max(b * size - seen, 0), (b + 1) * size - seen) for b in range(first, last + 1)]
    return [(b, drawn[start:end]) for b, start, end in cuts]


def _count(bins: np.ndarray, v: np.ndarray) -> None:
    """Add to a batch's bins of log v: numbers, and first and second moments about the bins' centres."""
    if not np.all(v > 0):
        raise unusable("outputs", "a token whose conditional variance is positive", "one that is zero in some networks")
    x = (np.log(v) - LOWEST) / BIN
    index = x.astype(int)
    within, first = x - index - 0.5, index.min()
    for k in range(3):
        counts = np.bincount(index - first, within**k if k else None)
        bins[k, first : first + len(counts)] += counts


def _from_bins(bins: np.ndarray) -> Nodes:
    full = np.flatnonzero(bins[0])
    mass, mean, square = bins[0, full], bins[1, full] / bins[0, full], bins[2, full] / bins[0, full]
    sd = np.sqrt((square - mean**2).clip(0))
    centre = full + 0.5 + mean
    x = LOWEST + BIN * np.concatenate([centre - sd, centre + sd])
    w = np.tile(mass, 2) / (2 * mass.sum())
    return mixtures.compress(x, w)


def _probability(p: Any, name: str) -> Any:
    if isinstance(p, Tracer) or np.all((np.asarray(p) > 0) & (np.asarray(p) < 1)):
        return p
    raise unusable(name, "probabilities between 0 and 1", p)
