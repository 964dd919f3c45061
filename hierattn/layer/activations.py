"""Activations phi and their duals E[phi(x) phi(y)] for centred jointly Gaussian x, y.

A dual takes the variances a, b and the covariance c of (x, y). Where a closed form exists it is used; every other function,
smooth or not, goes through `dual_by_quadrature`, which finds the kinks and jumps of phi and never integrates across one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable

Function = Callable[[Any], Any]
REACH = 9.0  # standard deviations kept on either side: 1e-19 of the mass lies beyond
PANEL = 16  # Gauss-Legendre nodes in a panel
UNEVEN = 0.4863  # where a panel is cut: not in the middle, so that a kink at 0 does not hide on a cut


@dataclass(frozen=True)
class Activation:
    """phi, its dual (a, b, c) -> E[phi(x) phi(y)] in float64, and up to which |x| it is phi(x) = x."""

    phi: Function
    dual: Callable[[float, float, float], float]
    linear_within: float = 0.0


def lookup(activation: "str | Activation | Function") -> Activation:
    """An activation by its name, as it is, or made from any function of arrays."""
    if isinstance(activation, Activation):
        return activation
    if callable(activation):
        return _from_function(activation)
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return ACTIVATIONS[activation]
    raise unusable("activation", "a function or one of " + ", ".join(ACTIVATIONS), repr(activation))


@lru_cache(maxsize=64)
def _from_function(phi: Function) -> Activation:
    """The same function gives the same activation, so that nothing is compiled again for it."""
    return Activation(phi, lambda a, b, c: dual_by_quadrature(phi, a, b, c))


def cross_dual(phi: Activation, psi: Activation, a: float, b: float, c: float) -> float:
    """E[phi(x) psi(y)] for two activations: the dual itself where they are one, quadrature where they differ."""
    return phi.dual(a, b, c) if phi is psi else dual_by_quadrature(phi.phi, a, b, c, psi.phi)


def clip(bound: float = 100.0) -> Activation:
    """phi(x) = x cut off at +-bound."""
    if not bound > 0:
        raise unusable("bound", "a positive number", bound)

    def phi(x: Any) -> Any:
        return jnp.clip(x, -bound, bound)

    def dual(a: float, b: float, c: float) -> float:
        return c if bound > REACH * np.sqrt(max(a, b)) else dual_by_quadrature(phi, a, b, c)

    return Activation(phi, dual, linear_within=bound)


def gelu(x: Any) -> Any:
    """X Phi(x), without the tanh approximation."""
    return jax.nn.gelu(x, approximate=False)


def _identity(x: Any) -> Any:
    return x


def _identity_dual(a: float, b: float, c: float) -> float:
    return c


def _relu_dual(a: float, b: float, c: float) -> float:
    """The arc-cosine kernel of degree one (Cho and Saul 2009)."""
    if a * b == 0:
        return 0.0
    theta = np.arccos(np.clip(c / np.sqrt(a * b), -1, 1))
    return np.sqrt(a * b) * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)


def _erf_dual(a: float, b: float, c: float) -> float:
    """The arc-sine kernel (Williams 1997)."""
    return 2 / np.pi * np.arcsin(2 * c / np.sqrt((1 + 2 * a) * (1 + 2 * b)))


def _gelu_dual(a: float, b: float, c: float) -> float:
    """Stein's lemma twice on E[x Phi(x) y Phi(y)]; T = E[phi(x) phi(y)] with phi the normal density."""
    T = 1 / (2 * np.pi * np.sqrt((1 + a) * (1 + b) - c**2))
    both_positive = 0.25 + np.arcsin(c / np.sqrt((1 + a) * (1 + b))) / (2 * np.pi)
    return c * both_positive + T * (a * b + c**2 * (1 / (1 + a) + 1 / (1 + b) - 1))


def dual_by_quadrature(phi: Function, a: float, b: float, c: float, psi: Function | None = None) -> float:
    """E[phi(x) psi(y)], psi = phi if not given, by Gauss-Legendre panels that end at kinks; about 1e-12 of the largest value.

    y given x is N(slope x, conditional_sd^2). The inner integral is cut where y meets a kink. As a function of x it is
    smooth, but may change within conditional_sd of a kink: the outer panels shrink geometrically towards each of them.
    """
    psi = phi if psi is None else psi
    sd_x, slope = np.sqrt(a), (c / a if a else 0.0)
    conditional_sd = np.sqrt(max(b - slope * c, 0.0))
    reach = REACH * np.sqrt(max(a, b))
    (mesh, kinks), (mesh_psi, kinks_psi) = resolve(phi, reach), resolve(psi, reach)
    x, weight = np.zeros(1), np.ones(1)
    if a:
        kinks_of_y, mesh_of_y = (kinks_psi / slope, mesh_psi / slope) if slope else (kinks_psi[:0], mesh_psi[:0])
        shrinking = REACH * sd_x * np.outer([-1, 1], 2.0 ** -np.arange(40)).ravel()
        near = np.add.outer(np.concatenate([kinks, kinks_of_y]), np.append(shrinking, 0)).ravel()
        ends = np.concatenate([np.linspace(-REACH, REACH, 9) * sd_x, mesh, mesh_of_y, near])
        x, weight = _gauss_legendre(np.unique(ends.clip(-REACH * sd_x, REACH * sd_x)))
        weight = weight * np.exp(-((x / sd_x) ** 2) / 2) / (sd_x * np.sqrt(2 * np.pi))
    mean = slope * x[:, None]
    cuts = np.concatenate([mesh_psi, kinks_psi]) - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        cuts = np.where(cuts == 0, 0, cuts / conditional_sd).clip(-REACH, REACH)
    grid = np.broadcast_to(np.linspace(-REACH, REACH, 9), (len(x), 9))
    z, inner_weight = _gauss_legendre(np.sort(np.concatenate([grid, cuts], axis=1), axis=1))
    inner = inner_weight * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * _values(psi, mean + conditional_sd * z)
    integrand = np.abs(weight * _values(phi, x) * inner.sum(axis=1))
    if a and max(integrand[0], integrand[-1]) > 1e-9 * integrand.max():
        raise unusable("activation", f"one that grows slower than a Gaussian falls within {REACH:g} standard deviations", phi)
    return float(weight @ (_values(phi, x) * inner.sum(axis=1)))


@lru_cache(maxsize=64)
def resolve(phi: Function, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of panels on which phi is a polynomial of degree PANEL - 1 to 1e-11, and its kinks, within +-reach.

    A panel that is not resolved is cut in two; one that is still not resolved when 1e-11 wide holds a kink or a jump.
    """
    nodes = np.polynomial.legendre.leggauss(PANEL)[0]
    to_coefficients = np.linalg.inv(np.polynomial.legendre.legvander(nodes, PANEL - 1))
    left, right = np.array([-reach]), np.array([reach])
    ends, kinks, largest = [left, right], [], 0.0
    while left.size:
        if left.size > 4096:
            raise unusable("activation", "a function with few kinks", "one too rough to integrate", "smooth it")
        values = _values(phi, (left + right)[:, None] / 2 + np.outer(right - left, nodes) / 2)
        if not np.all(np.isfinite(values)):
            raise unusable("activation", f"finite values within +-{reach:g}", "NaN or infinity")
        tail, size = np.abs(values @ to_coefficients[-2:].T).max(axis=1), np.abs(values).max(axis=1)
        largest = max(largest, size.max())
        rough = tail > 1e-11 * size + 1e-15 * largest
        kink = rough & (right - left < 1e-11 * reach)
        kinks.append((left + right)[kink] / 2)
        left, right = left[rough & ~kink], right[rough & ~kink]
        cut = left + UNEVEN * (right - left)
        ends.append(cut)
        left, right = np.concatenate([left, cut]), np.concatenate([cut, right])
    found = np.unique(np.concatenate(kinks))
    mesh = np.unique(np.concatenate(ends))
    if found.size:
        mesh = mesh[np.abs(np.subtract.outer(mesh, found)).min(axis=1) > 0.02 * reach]
    return mesh, found


def _gauss_legendre(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on the panels between neighbouring ends (last axis), flattened over panels."""
    nodes, weights = np.polynomial.legendre.leggauss(PANEL)
    half, centre = np.diff(ends)[..., None] / 2, (ends[..., 1:, None] + ends[..., :-1, None]) / 2
    shape = (*ends.shape[:-1], -1)
    return (centre + half * nodes).reshape(shape), (half * weights).reshape(shape)


def _values(phi: Function, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        try:
            values = np.asarray(phi(x), float)
        except (TypeError, ValueError):  # a function of one number, such as math.tanh or one with an if
            values = np.vectorize(phi, otypes=[float])(x)
    if values.shape != x.shape:
        raise unusable("activation", "a function of one coordinate at a time", f"shape {values.shape} from {x.shape}")
    return values


ACTIVATIONS = {
    "identity": Activation(_identity, _identity_dual, linear_within=np.inf),
    "clip": clip(),
    "relu": Activation(jax.nn.relu, _relu_dual),
    "erf": Activation(jax.lax.erf, _erf_dual),
    "gelu": Activation(gelu, _gelu_dual),
    "tanh": lookup(jnp.tanh),
}
