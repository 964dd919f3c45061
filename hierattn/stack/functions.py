"""Activations of MLPs, and their kernels for many networks at once.

    E[phi(x_i) phi(x_j)] = sum_k h_k(sd_i) h_k(sd_j) rho_ij^k,    h_k(sd) = E[phi(sd z) He_k(z)] / sqrt(k!)

(Mehler's formula) for centred Gaussians x of covariance K and correlation rho. Functions with a kink or of bounded range have
closed forms, since their coefficients fall slowly.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.layer.activations import ACTIVATIONS, Function, gelu

TERMS, NODES = 100, 200  # of Mehler's sum, of Gauss and Hermite's rule


def gelu_tanh(x: Any) -> Any:
    """GELU with the approximation by tanh that GPT-2 and Gemma use."""
    return jax.nn.gelu(x, approximate=True)


FUNCTIONS: dict[str, Function] = {name: activation.phi for name, activation in ACTIVATIONS.items() if name != "clip"}
FUNCTIONS |= {"silu": jax.nn.silu, "gelu_tanh": gelu_tanh}


def function_of(activation: Any) -> Function:
    """A function by its name, or as it is."""
    if isinstance(activation, str) and activation in FUNCTIONS:
        return FUNCTIONS[activation]
    if callable(activation):
        return activation
    raise unusable("activation", "a function or one of " + ", ".join(FUNCTIONS), repr(activation))


def dual(activation: Any, K: Float[Array, "*batch s s"]) -> Float[Array, "*batch s s"]:
    """E[phi(x_i) phi(x_j)] for x ~ N(0, K)."""
    phi, variance = function_of(activation), jnp.diagonal(K, axis1=-2, axis2=-1)
    a, b = variance[..., :, None], variance[..., None, :]
    if phi in CLOSED:
        return CLOSED[phi](a, b, K)
    sd = jnp.sqrt(variance)
    scale = sd[..., :, None] * sd[..., None, :]
    rho = jnp.clip(jnp.where(scale > 0, K / jnp.where(scale > 0, scale, 1), 0), -1, 1)
    h = coefficients(phi, sd)

    def add(k: Any, found: tuple) -> tuple:
        total, power = found
        return total + h[k][..., :, None] * h[k][..., None, :] * power, power * rho

    return jax.lax.fori_loop(0, TERMS, add, (jnp.zeros_like(K), jnp.ones_like(K)))[0]


def coefficients(phi: Function, sd: Float[Array, "*batch s"]) -> Float[Array, "k *batch s"]:
    """h_k(sd) for k < TERMS, by Gauss and Hermite's rule."""
    z, weights = np.polynomial.hermite_e.hermegauss(NODES)
    basis = [np.ones(NODES), z]
    for k in range(2, TERMS):  # normalised: sqrt(k) he_k = z he_{k-1} - sqrt(k - 1) he_{k-2}
        basis.append((z * basis[-1] - np.sqrt(k - 1) * basis[-2]) / np.sqrt(k))
    rule = jnp.asarray(np.stack(basis) * weights / weights.sum(), sd.dtype)
    return jnp.moveaxis(phi(sd[..., None] * jnp.asarray(z, sd.dtype)) @ rule.T, -1, 0)


def _identity(a: Any, b: Any, c: Any) -> Any:
    return c


def _relu(a: Any, b: Any, c: Any) -> Any:
    """The arc-cosine kernel of degree one (Cho and Saul 2009)."""
    scale = jnp.sqrt(a * b)
    cosine = jnp.clip(jnp.where(scale > 0, c / jnp.where(scale > 0, scale, 1), 0), -1, 1)
    return scale * (jnp.sqrt((1 - cosine) * (1 + cosine)) + (jnp.pi - jnp.arccos(cosine)) * cosine) / (2 * jnp.pi)


def _erf(a: Any, b: Any, c: Any) -> Any:
    """The arc-sine kernel (Williams 1997)."""
    return 2 / jnp.pi * jnp.arcsin(2 * c / jnp.sqrt((1 + 2 * a) * (1 + 2 * b)))


def _gelu(a: Any, b: Any, c: Any) -> Any:
    """Stein's lemma twice, as for two tokens in `layer.activations`."""
    product = (1 + a) * (1 + b)
    T = 1 / (2 * jnp.pi * jnp.sqrt(product - c**2))
    both_positive = 0.25 + jnp.arcsin(c / jnp.sqrt(product)) / (2 * jnp.pi)
    return c * both_positive + T * (a * b + c**2 * (1 / (1 + a) + 1 / (1 + b) - 1))


CLOSED = {FUNCTIONS["identity"]: _identity, jax.nn.relu: _relu, jax.lax.erf: _erf, gelu: _gelu}
