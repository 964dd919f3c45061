"""Functions of y ~ N(0, v) for a law of v as nodes: density, tails, quantiles, moments. Of one law; vmap for several."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr, logsumexp, ndtr, ndtri
from jaxtyping import Array

from hierattn.mixtures import Nodes


def _log_terms(nodes: Nodes, y: Array) -> tuple[Array, Array]:
    """Standardised |y|-sided arguments y / sqrt(v) and log weights, nodes on the last axis; empty nodes weigh nothing."""
    log_w = jnp.where(nodes.w > 0, jnp.log(jnp.where(nodes.w > 0, nodes.w, 1)), -jnp.inf)
    return y[..., None] * jnp.exp(-nodes.x / 2), log_w


def logpdf(nodes: Nodes, y: Array) -> Array:
    """Logarithm of the density."""
    z, log_w = _log_terms(nodes, y)
    return logsumexp(log_w - (z**2 + nodes.x + math.log(2 * math.pi)) / 2, axis=-1)


def pdf(nodes: Nodes, y: Array) -> Array:
    """Density."""
    return jnp.exp(logpdf(nodes, y))


def cdf(nodes: Nodes, y: Array) -> Array:
    """Distribution function."""
    return sf(nodes, -y)


def sf(nodes: Nodes, y: Array) -> Array:
    """P(y > a value)."""
    return jnp.sum(nodes.w * ndtr(-_log_terms(nodes, y)[0]), axis=-1)


def logsf(nodes: Nodes, y: Array) -> Array:
    """Logarithm of P(y > a value), far into the tail."""
    z, log_w = _log_terms(nodes, y)
    return logsumexp(log_w + log_ndtr(-z), axis=-1)


def ppf(nodes: Nodes, q: Array) -> Array:
    """Quantile."""
    return jnp.where(q < 0.5, -1, 1) * _isf_of_tail(nodes, jnp.minimum(q, 1 - q))


def isf(nodes: Nodes, p: Array) -> Array:
    """Value exceeded with a probability."""
    return jnp.where(p > 0.5, -1, 1) * _isf_of_tail(nodes, jnp.minimum(p, 1 - p))


def _isf_of_tail(nodes: Nodes, p: Array) -> Array:
    """For p <= 1/2: bisection between the quantiles of the narrowest and the widest Gaussian, then one step of Newton's
    method, which makes it differentiable.
    """
    still = jax.lax.stop_gradient(nodes)
    log_p = jnp.log(jax.lax.stop_gradient(p))
    widths = jnp.where(still.w > 0, still.x, jnp.nan)
    low, high = (-ndtri(jax.lax.stop_gradient(p)) * jnp.exp(x / 2) for x in (jnp.nanmin(widths), jnp.nanmax(widths)))

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        beyond = logsf(still, middle) > log_p
        return jnp.where(beyond, middle, low), jnp.where(beyond, high, middle)

    low, high = jax.lax.fori_loop(0, 50, halve, (low, high))
    y = (low + high) / 2
    slope = -jnp.exp(logpdf(still, y) - logsf(still, y))
    return y - (logsf(nodes, y) - jnp.log(p)) / slope


def moment(nodes: Nodes, k: Array) -> Array:
    """E[y^k]."""
    odd_numbers = jnp.exp(gammaln(k + 1) - gammaln(k / 2 + 1)) * 2 ** (-k / 2)  # (k - 1)!!
    return jnp.where(k % 2, 0, odd_numbers * jnp.sum(nodes.w * jnp.exp(k / 2 * nodes.x)))


def excess_kurtosis(nodes: Nodes, _: None) -> Array:
    """3 Var(v) / E[v]^2."""
    v = jnp.exp(nodes.x)
    mean = jnp.sum(nodes.w * v)
    return 3 * jnp.sum(nodes.w * (v / mean - 1) ** 2)


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
