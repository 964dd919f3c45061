"""Functions of y ~ N(0, v) for a law of v as nodes: density, tails, quantiles, moments.

Nodes are on the last axis, their other axes are those of y, or laws beside each other. By NumPy, or by JAX where something is
traced (`mixtures.traced`).
"""

import math
from collections.abc import Callable
from functools import reduce
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special

from hierattn.base.tracing import traced
from hierattn.numerics.mixtures import Nodes

HALVINGS = 50  # of an interval that holds a quantile


def _libraries(nodes: Nodes, y: Any) -> tuple[Any, ModuleType]:
    """Arrays and special functions."""
    return (jnp, jax.scipy.special) if traced(*nodes, y) else (np, scipy.special)


def _log_terms(nodes: Nodes, y: Any) -> tuple[Any, Any]:
    """Standardised |y|-sided arguments y / sqrt(v) and log weights, nodes on the last axis; empty nodes weigh nothing."""
    xp, _ = _libraries(nodes, y)
    log_w = xp.where(nodes.w > 0, xp.log(xp.where(nodes.w > 0, nodes.w, 1)), -xp.inf)
    return y[..., None] * xp.exp(-nodes.x / 2), log_w


def logpdf(nodes: Nodes, y: Any) -> Any:
    """Logarithm of the density."""
    z, log_w = _log_terms(nodes, y)
    return _libraries(nodes, y)[1].logsumexp(log_w - (z**2 + nodes.x + math.log(2 * math.pi)) / 2, axis=-1)


def pdf(nodes: Nodes, y: Any) -> Any:
    """Density."""
    xp, _ = _libraries(nodes, y)
    return xp.exp(logpdf(nodes, y))


def cdf(nodes: Nodes, y: Any) -> Any:
    """Distribution function."""
    return sf(nodes, -y)


def sf(nodes: Nodes, y: Any) -> Any:
    """P(y > a value)."""
    _, special = _libraries(nodes, y)
    return (nodes.w * special.ndtr(-_log_terms(nodes, y)[0])).sum(axis=-1)


def logsf(nodes: Nodes, y: Any) -> Any:
    """Logarithm of P(y > a value), far into the tail."""
    z, log_w = _log_terms(nodes, y)
    _, special = _libraries(nodes, y)
    return special.logsumexp(log_w + special.log_ndtr(-z), axis=-1)


def ppf(nodes: Nodes, q: Any) -> Any:
    """Quantile."""
    xp, _ = _libraries(nodes, q)
    return xp.where(q < 0.5, -1, 1) * _isf_of_tail(nodes, xp.minimum(q, 1 - q))


def isf(nodes: Nodes, p: Any) -> Any:
    """Value exceeded with a probability."""
    xp, _ = _libraries(nodes, p)
    return xp.where(p > 0.5, -1, 1) * _isf_of_tail(nodes, xp.minimum(p, 1 - p))


def _isf_of_tail(nodes: Nodes, p: Any) -> Any:
    """For p <= 1/2: bisection between the quantiles of the narrowest and the widest Gaussian, then one step of Newton's
    method, which makes it differentiable.
    """
    xp, special = _libraries(nodes, p)
    still, still_p = (nodes, p) if xp is np else jax.lax.stop_gradient((nodes, p))
    widths, log_p = xp.where(still.w > 0, still.x, xp.nan), xp.log(still_p)
    ends = tuple(-special.ndtri(still_p) * xp.exp(f(widths, axis=-1) / 2) for f in (xp.nanmin, xp.nanmax))

    def halve(_: Any, ends: tuple) -> tuple:
        low, high = ends
        middle = (low + high) / 2
        beyond = logsf(still, middle) > log_p
        return xp.where(beyond, middle, low), xp.where(beyond, high, middle)

    if xp is jnp:
        low, high = jax.lax.fori_loop(0, HALVINGS, halve, ends)
    else:
        low, high = reduce(lambda ends, i: halve(i, ends), range(HALVINGS), ends)
    y = (low + high) / 2
    slope = -xp.exp(logpdf(still, y) - logsf(still, y))
    return y - (logsf(nodes, y) - xp.log(p)) / slope


def moment(nodes: Nodes, k: Any) -> Any:
    """E[y^k]."""
    xp, special = _libraries(nodes, k)
    odd_numbers = xp.exp(special.gammaln(k + 1) - special.gammaln(k / 2 + 1)) * 2 ** (-k / 2)  # (k - 1)!!
    return xp.where(k % 2, 0, odd_numbers * (nodes.w * xp.exp(k / 2 * nodes.x)).sum(axis=-1))


def excess_kurtosis(nodes: Nodes, _: None) -> Any:
    """3 Var(v) / E[v]^2."""
    v = _libraries(nodes, None)[0].exp(nodes.x)
    mean = (nodes.w * v).sum(axis=-1, keepdims=True)
    return 3 * (nodes.w * (v / mean - 1) ** 2).sum(axis=-1)


FUNCTIONS: dict[str, Callable] = {
    "pdf": pdf,
    "logpdf": logpdf,
    "cdf": cdf,
    "sf": sf,
    "logsf": logsf,
    "ppf": ppf,
    "isf": isf,
    "moment": moment,
    "excess_kurtosis": excess_kurtosis,
}
