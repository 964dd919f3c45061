"""One token's density on 1,000 points: error over its peak, against exact densities (one head's characteristic function to the
power H), stated error, and time once compiled."""

import time
from functools import partial

import numpy as np

from hierattn import Architecture, Law, kernels
from hierattn.law.row import diagonal_and_rest
from hierattn.numerics.softmax_integrals import density

SEED = 0
GRID, FREQUENCIES = np.linspace(-14, 14, 2801), np.linspace(0, 30, 6001)


def exact(K: np.ndarray, q: float, H: int, y: np.ndarray, sd: float) -> np.ndarray:
    """The density of H heads by Fourier: one head's, with the common part c of the kernel as an independent Gaussian."""
    d, c, _ = diagonal_and_rest(K)
    tau = q * np.sqrt(K[0, 0] * d[0])
    points = GRID * np.sqrt(sd**2 - c)
    one = density(points / np.sqrt(d[0]), len(K), tau) / np.sqrt(d[0])
    t = FREQUENCIES / sd
    phi = np.cos(np.outer(t / np.sqrt(H), points)) @ one * (points[1] - points[0]) * np.exp(-(t**2) * c / (2 * H))
    weights = np.full(len(t), t[1])
    weights[0] /= 2
    return np.cos(np.outer(y, t)) @ (weights * phi**H) / np.pi


def case(name: str, s: int, H: int, q: float) -> dict:
    """One law."""
    K, goal = kernels.activation(name, s), 1e-7 if s <= 4 else 1e-6
    law = Law(Architecture(heads=H, sigma_q=q), K)
    sd = float(np.sqrt(law.marginal(accuracy=goal).variance))
    y = np.linspace(-6, 6, 1000) * sd
    start = time.perf_counter()
    marginal = law.marginal(accuracy=goal)
    found = marginal.pdf(y)
    took = time.perf_counter() - start
    truth = exact(K, q, H, y[::10], sd)
    error, stated = float(np.abs(found[::10] - truth).max() / truth.max()), marginal.density_error()
    passed = error < goal and stated < goal and error <= max(stated, 1e-9) and took < 1
    return {"passed": passed, "error": error, "stated": stated, "goal": goal, "took": took, "method": marginal.method}


LAWS = [(name, s, H, q) for name in ("clip", "relu") for s in (2, 3, 4, 8, 16) for H in (1, 2, 8, 256) for q in (1.0,)]
LAWS += [("clip", s, H, q) for s in (4, 16) for H in (1, 8) for q in (0.3, 3.0)]
CASES = {f"{name}, {s} tokens, {H} heads, score scale {q:g}": partial(case, name, s, H, q) for name, s, H, q in LAWS}
