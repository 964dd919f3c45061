"""Effective draws a second of `fit` beside NumPyro's NUTS on the same model and data, four chains on all cores: at least ten
times as many wherever NUTS ends within three minutes. Compilation is not counted, which is most of a small fit; whole times
stand beside. Designs (networks, tokens, heads, coordinates)."""

import json
import time
from functools import partial

import numpy as np
from claims.fit_designs import drawn

from hierattn import Architecture, InputError, Observations, fit, kernels
from hierattn.inference.course.compiling import compiling

SEED = 0
BUDGET, GOAL = "3m", 10.0


def rate(observations: Observations, model: str, **how: str) -> dict:
    """Smallest effective number of draws of the scales, and that a second; none of a fit that is refused."""
    start, compiled = time.perf_counter(), compiling()
    try:
        tree = fit(observations, model, seed=SEED, log_likelihood=False, try_heads=(), **how)
    except InputError as refused:
        return {"verdict": f"refused: {refused}", "took": time.perf_counter() - start, "ess_bulk": 0.0, "rate": 0.0}
    took, without = time.perf_counter() - start, compiling() - compiled
    table = json.loads(tree.attrs["parameters"])
    effective = min(table[name]["ess_bulk"] for name in ("score_scale", "value_scale"))
    numbers = {"took": took, "compiling": without, "ess_bulk": effective, "rate": effective / (took - without)}
    return {"verdict": tree.attrs["verdict"], **numbers}


def case(layer: Architecture, networks: int, coordinates: int, K: np.ndarray, model: str = "limit_law") -> dict:
    """Both routes to one posterior."""
    y = drawn(layer, K, networks, coordinates, SEED)
    observations = Observations(y, None if model == "kernel_unknown" else K, layer=layer, mask=layer.mask)
    ours = rate(observations, model, method="networkwise")
    theirs = rate(observations, model, method="nuts", budget=BUDGET)
    ratio = ours["rate"] / theirs["rate"] if theirs["rate"] else None
    numbers = {f"ours_{key}": value for key, value in ours.items()} | {f"nuts_{key}": value for key, value in theirs.items()}
    ended = theirs["verdict"] == "CONVERGED"
    return {"passed": ours["verdict"] == "CONVERGED" and (not ended or ratio >= GOAL), "ratio": ratio, **numbers}


def sharp(score_scale: float) -> Architecture:
    """One head."""
    return Architecture(sigma_q=score_scale)


TWO = Architecture(heads=2)
CASES = {
    "(50, 4, 2, 16)": partial(case, TWO, 50, 16, np.eye(4)),
    "(50, 4, 1, 16), score_scale 1.6": partial(case, sharp(1.6), 50, 16, np.eye(4)),
    "(150, 4, 1, 64), score_scale 1.6": partial(case, sharp(1.6), 150, 64, np.eye(4)),
    "(50, 4, 2, 16), head_dim 16": partial(case, TWO.replace(head_dim=16), 50, 16, np.eye(4), "finite_head_dim"),
    "(50, 4, 2, 16), kernel unknown": partial(case, TWO, 50, 16, kernels.rbf(4, 1.0), "kernel_unknown"),
    "(50, 6, 2, 32), causal": partial(case, TWO.replace(mask="causal"), 50, 32, kernels.rbf(6, 1.0)),
}
