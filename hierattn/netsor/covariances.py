"""E[Z^u Z^v] of a program's vectors by the master theorem (THEORY section 3): closed forms, quadrature or quasi-Monte Carlo.

Initial vectors have the covariance they were given, products with one matrix sigma_W^2 E[Z^x Z^x'], products with two matrices
none. Sums of functions of one Gaussian each go through the duals that input kernels use; everything else is averaged over the
joint Gaussian of what it is made of.
"""

from operator import add
from typing import Any

import jax
import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer import kernels
from hierattn.layer.activations import ACTIVATIONS, Activation, cross_dual
from hierattn.netsor.variables import Initial, MatMul, Nonlin, support, value_of
from hierattn.numerics import rqmc

IDENTITY = ACTIVATIONS["identity"]
CLOSED = [ACTIVATIONS[name] for name in ("identity", "relu", "erf", "gelu")]
METHODS = ("closed form", "quadrature", "quasi-Monte Carlo")
ROUNDING = (1e-14, 1e-11, 1e-11)  # errors of duals, relative to the norms of both vectors, over some ten layers
ENOUGH, BUDGET = 1e-5, 2**21

Terms = tuple[tuple[Activation, tuple[Any, ...]], ...]  # a sum of phi(sum of Gaussians)


class Covariances:
    """One run of the recursion, which remembers every pair, and the least exact method it needed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.method = seed, 0
        self.known: dict[tuple[Any, Any], float] = {}
        self.duals: dict[tuple, float] = {}

    def matrix(self, us: Any, vs: Any) -> np.ndarray:
        """All pairs."""
        return np.array([[self(u, v) for v in vs] for u in us], float).reshape(len(us), len(vs))

    def __call__(self, u: Any, v: Any) -> float:
        """One pair."""
        if (u, v) not in self.known:
            self.known[u, v] = self.known[v, u] = self._found(u, v)
        return self.known[u, v]

    def _found(self, u: Any, v: Any) -> float:
        if isinstance(u, Nonlin) or isinstance(v, Nonlin):
            left, right = _terms(u), _terms(v)
            if left is None or right is None:
                return self._average(u, v)
            return sum(self._dual(phi, psi, x, y) for phi, x in left for psi, y in right)
        if isinstance(u, Initial) and isinstance(v, Initial) and u.covariance is v.covariance:
            return float(u.covariance[u.member, v.member])
        if isinstance(u, MatMul) and isinstance(v, MatMul) and u.W is v.W:
            return u.W.sigma**2 * self(u.x, v.x)
        return 0.0

    def _dual(self, phi: Activation, psi: Activation, x: tuple[Any, ...], y: tuple[Any, ...]) -> float:
        c = float(self.matrix(x, y).sum())
        if phi is psi is IDENTITY:
            return c
        a, b = float(self.matrix(x, x).sum()), float(self.matrix(y, y).sum())
        exact = phi is psi and (phi in CLOSED or phi.linear_within > 9 * np.sqrt(max(a, b)))
        self.method = max(self.method, 0 if exact else 1)
        if (phi, psi, a, b, c) not in self.duals:
            self.duals[phi, psi, a, b, c] = float(cross_dual(phi, psi, a, b, c))
        return self.duals[phi, psi, a, b, c]

    def _average(self, u: Any, v: Any) -> float:
        """E[Z^u Z^v] over the Gaussians that both are made of."""
        self.method, base = 2, support([u, v])

        def means(Z: np.ndarray) -> np.ndarray:
            with jax.enable_x64(True):
                known = dict(zip(base, Z, strict=True))
                x, y = (np.asarray(value_of(w, known)) for w in (u, v))
            return np.array([np.mean(x * y), np.mean(x * x), np.mean(y * y)])

        rows = rqmc.gaussian_mean(means, kernels.factor(self.matrix(base, base)), self.seed, ENOUGH, BUDGET)
        if not np.all(np.isfinite(rows)):
            raise unusable("program", "functions with second moments (pseudo-Lipschitz)", "NaN or infinity", "clip arguments")
        return float(rows[:, 0].mean())


def _terms(u: Any) -> Terms | None:
    """U as a sum of functions of one Gaussian each, if it is one; what is linear in Gaussians comes together."""
    if not isinstance(u, Nonlin):
        return ((IDENTITY, (u,)),)
    if u.phi is add:
        left, right = map(_terms, u.arguments)
        if left is None or right is None:
            return None
        straight = tuple(g for phi, x in (*left, *right) if phi is IDENTITY for g in x)
        return (*(t for t in (*left, *right) if t[0] is not IDENTITY), *([(IDENTITY, straight)] if straight else []))
    inner = _terms(u.arguments[0]) if u.activation is not None else None
    if inner is None or u.activation is None or [phi for phi, _ in inner] != [IDENTITY]:
        return None
    return ((u.activation, inner[0][1]),)
