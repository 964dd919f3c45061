"""Moments of the law, each with an error that covers the truth.

One token's outputs are a scale mixture: y ~ N(0, v), v = H^{-1} sum_a o_a^2 u_a, u = w K w' with w the token's attention row.
Its variance is E[v] and its excess kurtosis 3 Var(v) / E[v]^2, made of E[u] and Var(u) of every head (THEORY section 4).

    closed form    weights that cannot vary, and identity scores
    quadrature     softmax, keys independent but for a common part: one-dimensional integrals (`softmax_integrals`)
    RQMC           anything else: a Sobol net under random shifts, whose spread is the error

At finite head_dim the row's scores share a factor r ~ chi2_{n_H} / n_H, and the values' Wishart matrix, integrated out by hand,
adds (2 / n_H) E[u^2] to the variance of u, or its mixed terms for heads that share values (THEORY section 6).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from hierattn.law import joint_moments
from hierattn.law.hierarchy import Hierarchy
from hierattn.law.row import Head, Row, centred, coupled, diagonal_and_rest, heads_of, row_of
from hierattn.layer.architecture import Architecture
from hierattn.layer.weighing import Weighing
from hierattn.numerics import chi_square, rqmc
from hierattn.numerics.softmax_integrals import MeanVariance

PILOT = 2**21  # numbers spent on the choice between two ways to integrate
ENOUGH_MEAN, ENOUGH_VARIANCE = 5e-5, 3e-3  # relative errors at which RQMC stops


class Moments(NamedTuple):
    """Variance and excess kurtosis of one token. The truth lies within an error in 999 of 1,000 cases (always, if exact)."""

    variance: float
    variance_error: float
    excess_kurtosis: float
    excess_kurtosis_error: float
    method: str


def of_token(law: Hierarchy, token: int = 0, seed: int = 0) -> Moments:
    """Variance and excess kurtosis of the outputs of one token."""
    row, layer = row_of(law, token), law.layer
    H, extra = layer.heads, 2 / layer.head_dim if layer.head_dim else 0.0
    if coupled(layer, row.K):  # the row's scores have more in common than a factor
        mean, mean_error, covariance, covariance_error = (x.item() for x in joint_moments.of_tokens(law, [token], seed))
        return _moments(mean, mean_error, covariance, covariance_error, "RQMC")
    heads = heads_of(layer, row)
    settings = {head.setting: head for head in heads}  # values' scales do not matter for u
    kinds = {key: _of_u(row, layer, head, seed) for key, head in settings.items()}
    found = [kinds[head.setting] for head in heads]
    E, V, E_error, V_error = np.array([each for each, _ in found]).T
    V, V_error = V * (1 + extra) + extra * E**2, V_error * (1 + extra) + 2 * extra * E * E_error
    o, count = np.array([head.o for head in heads]), np.array([head.number for head in heads])
    method = " and ".join(sorted({method for _, method in found}))
    share, square = count * o**2 / H, count * o**4 / H**2
    return _moments(share @ E, share @ E_error, square @ V, square @ V_error, method)


def summary(law: Hierarchy, token: int = 0, seed: int = 0) -> dict[str, Any]:
    """One token's law as a flat record: every number beside its error; None, with a reason, for what does not exist."""
    found = of_token(law, token, seed)
    infinite = found if law.layer.head_dim is None else of_token(law.with_infinite_head_dim(), token, seed)
    record: dict[str, Any] = {
        "variance": found.variance,
        "variance_error": found.variance_error,
        "excess_kurtosis": found.excess_kurtosis,
        "excess_kurtosis_error": found.excess_kurtosis_error,
        "infinite_heads_variance": infinite.variance,
        "infinite_heads_variance_error": infinite.variance_error,
        "method": found.method,
        "reasons": [],
    }
    if found.variance == 0:
        message = "the outputs of this token are zero, so that their kurtosis does not exist"
        record |= {"excess_kurtosis": None, "excess_kurtosis_error": None}
        record["reasons"] = [{"code": "zero_outputs", "message": message, "numbers": {"variance": 0.0}}]
    return record


def _moments(E: float, E_error: float, V: float, V_error: float, method: str) -> Moments:
    if E == 0:
        return Moments(0.0, 0.0, float("nan"), float("nan"), method)
    kurtosis = 3 * V / E**2
    return Moments(float(E), float(E_error), float(kurtosis), float(3 * V_error / E**2 + 2 * kurtosis * E_error / E), method)


def _of_u(row: Row, layer: Architecture, head: Head, seed: int) -> tuple[MeanVariance, str]:
    """Mean and variance of u for one head, and how they were found."""
    C, K, n_H, weighing = head.q**2 * row.C, row.K, layer.head_dim, head.weighing
    known = weighing.closed_form(K, C, n_H)
    if known is not None:
        return known, "closed form"
    if weighing.integrals is not None:
        (d, c, K_fits), (tau_squared, _, C_fits) = diagonal_and_rest(K), diagonal_and_rest(C)
        if len(K) == 2:
            tau_squared[:] = tau_squared.mean()  # of two scores only the difference counts
        if K_fits and C_fits and np.all(tau_squared > 0):
            alone = weighing.integrals.mixed(d, weighing.added, np.sqrt(tau_squared), n_H)
            if alone is not None and _shortfall(alone._replace(mean=alone.mean + c)) < 1:
                return alone._replace(mean=alone.mean + c), "quadrature"
    return _of_u_by_rqmc(K, C, n_H, weighing, seed), "RQMC"


def _of_u_by_rqmc(K: np.ndarray, C: np.ndarray, n_H: int | None, weighing: Weighing, seed: int) -> MeanVariance:
    """RQMC over the row's scores, p = R z sqrt(r), on the better of two roots R of their covariance.

    Principal axes, widest first, suit smooth kernels. The symmetric root suits nearly independent keys: it is close to the
    independent scores p_j = tau_j z_j, whose u_0 has known moments and serves as control variate.
    """
    values, vectors = np.linalg.eigh(centred(C) if weighing.shift_invariant else C)
    axes = vectors * np.sqrt(values.clip(0))
    tries = [_RowIntegral(K, axes[:, ::-1], n_H, weighing)]
    if weighing.integrals is not None:
        (d, c, _), (tau_squared, *_) = diagonal_and_rest(K), diagonal_and_rest(C)
        tau = np.sqrt(tau_squared.clip(0))
        known = weighing.integrals.moments(d, weighing.added, tau)
        if known is not None:
            tries.append(_RowIntegral(K, axes @ vectors.T, n_H, weighing, Control(d, c, tau, known)))
    best = min(tries, key=lambda integral: _shortfall(integral.estimate(seed, PILOT)))
    return best.estimate(seed)


class Control(NamedTuple):
    """A control variate u_0 = sum_j d_j w_j^2 + c over independent scores p_j = tau_j z_j, and what is known of it."""

    d: np.ndarray
    c: float
    tau: np.ndarray
    known: MeanVariance


class _RowIntegral:
    """Mean and variance of u over p = R z sqrt(r), with or without a control variate."""

    def __init__(
        self, K: np.ndarray, R: np.ndarray, n_H: int | None, weighing: Weighing, control: Control | None = None
    ) -> None:
        self.K, self.R, self.n_H, self.weighing, self.control = K, R, n_H, weighing, control
        w = weighing.weights(np.zeros(len(K)))
        self.around = w @ K @ w

    def estimate(self, seed: int, budget: int | None = None) -> MeanVariance:
        dim = self.R.shape[1] + (self.n_H is not None)
        return self.summary(rqmc.expectations(self.statistics, dim, seed, self.enough, budget))

    def statistics(self, uniforms: np.ndarray) -> np.ndarray:
        """Means of u and u^2 about a centre, and with a control variate those of u_0 and all products."""
        z = ndtri(uniforms[:, : self.R.shape[1]])
        p = z @ self.R.T
        if self.n_H is not None:
            p *= np.sqrt(chi_square.quantile(uniforms[:, -1:], self.n_H))
        w = self.weighing.weights(p)
        u = np.einsum("nj,nj->n", w @ self.K, w) - self.around
        columns = [u, u**2]
        if self.control is not None:
            w = self.weighing.weights(self.control.tau * z)
            u_0 = w**2 @ self.control.d + self.control.c - self.around
            columns += [u_0, u_0**2]
        x = np.stack(columns)
        return np.concatenate([x.mean(axis=1), (x @ x.T).ravel() / x.shape[1]])

    def summary(self, means: np.ndarray) -> MeanVariance:
        known_error = (0.0, 0.0)
        first, second = means[:, :2].T
        if self.control is not None:
            first, second = self.controlled(means, self.control)
            known_error = self.control.known[2:]
        mean, variance = first.mean(), second.mean() - first.mean() ** 2
        mean_error, variance_error = rqmc.error(first) + known_error[0], rqmc.error(second - first**2) + known_error[1]
        return MeanVariance(self.around + mean, variance, mean_error, variance_error)

    def controlled(self, means: np.ndarray, control: Control) -> np.ndarray:
        """Regress (u, u^2) on (u_0, u_0^2), whose means are known."""
        centre, products = means[:, :4].mean(axis=0), means[:, 4:].mean(axis=0).reshape(4, 4)
        covariance = products - np.outer(centre, centre)
        slopes = np.linalg.lstsq(covariance[2:, 2:], covariance[2:, :2])[0]
        first = control.known.mean + control.c - self.around
        truth = np.array([first, control.known.variance + first**2])
        return (means[:, :2] - (means[:, 2:4] - truth) @ slopes).T

    def enough(self, means: np.ndarray) -> bool:
        return _shortfall(self.summary(means)) < 1


def _shortfall(found: MeanVariance) -> float:
    """How many times the worse of the two relative errors is larger than it should be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = (found.mean_error / found.mean / ENOUGH_MEAN, found.variance_error / abs(found.variance) / ENOUGH_VARIANCE)
    return float(np.nanmax(errors)) if found.mean_error or found.variance_error else 0.0
