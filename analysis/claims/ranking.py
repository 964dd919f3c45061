"""Ranking of models by leaving networks out: on data of the law it leads, or no model is told from it; on Gaussian data the
Gaussian of infinitely many heads does; a law without shared scores loses on both. 150 networks, 4 tokens, one head, 16
coordinates; models that do not converge in their share of the time are left out and said."""

from functools import partial

import jax
import numpy as np

from hierattn import Architecture, Law, Observations, compare_models

SEED = 0
MODELS = ("limit_law", "infinite_heads", "separate_kernels", "student_t")
TOLD = 3.0  # standard errors of a difference
BUDGET = "20m"  # for all models


def outputs(networks: int, coordinates: int, layer: Architecture, gaussian: bool) -> np.ndarray:
    """Of the law, or Gaussian with the same covariance."""
    law = Law(layer, np.eye(4))
    if not gaussian:
        return np.asarray(law.sample(jax.random.key(SEED), networks, coordinates))
    covariance = np.asarray(law.joint_moments().mean)
    y = np.random.default_rng(SEED).normal(size=(networks, coordinates, 4)) @ np.linalg.cholesky(covariance).T
    return np.moveaxis(y, 1, -1)


def case(gaussian: bool, heads: int = 1, networks: int = 150, coordinates: int = 16) -> dict:
    """The table's lines, and whether the right model leads while the wrong ones are told from it."""
    layer = Architecture(heads=heads).with_scales(1.6, 1.0)
    observations = Observations(outputs(networks, coordinates, layer, gaussian), kernel=np.eye(4), heads=heads)
    ranking = compare_models(observations, models=MODELS, seed=SEED, budget=BUDGET)
    rows = {row["model"]: row for row in ranking.rows}
    right, wrong = ("infinite_heads", ["limit_law"]) if gaussian else ("limit_law", ["infinite_heads", "student_t"])
    best = rows.get(right)

    def told(name: str) -> bool:
        row = rows[name]
        return row["difference"] > TOLD * row["difference_error"]

    passed = best is not None and not told(right) and all(told(name) for name in wrong if name in rows)
    numbers = {
        f"{row['model']} behind by": [round(row["difference"], 2), round(row["difference_error"], 2)] for row in rows.values()
    }
    numbers |= {f"{row['model']} khat": round(row["khat"], 2) for row in rows.values()}
    return {"passed": passed, **numbers, "left_out": [found["message"] for found in ranking.reasons]}


CASES = {"data of the law, 1 head": partial(case, False), "Gaussian data, 1 head": partial(case, True)}
