"""Outputs are Gaussian: no trace of random scores."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Rival, Simulated
from hierattn.layer import kernels


def outputs(simulated: Simulated, rng: np.random.Generator) -> np.ndarray:
    """Networks with the mean covariance of their kernel, all the same."""
    root, (networks, _, coordinates) = kernels.factor(simulated.Sigma), simulated.y.shape
    normals = rng.standard_normal((networks, root.shape[-1], coordinates))
    return root[np.arange(networks) % len(root)] @ normals


DEPARTURE = Departure(
    code="gaussian",
    looked_at="whether networks differ at all, and have heavier tails than a Gaussian",
    points_to="scores that do not vary between networks",
    remedy="are the networks drawn independently, each with weights of its own? If they are, the scores vanish (a small "
    "score_scale, or 1 / head_dim scaling) or heads are many: fit the models linear_scaling and infinite_heads",
    rival=Rival("gaussian", "Gaussian outputs of equal covariance", outputs),
)


def explain(numbers: dict[str, float]) -> dict[str, Any]:
    """Neither do networks differ, nor are the tails heavy."""
    return DEPARTURE.reason("networks do not differ and outputs are Gaussian: no trace of random scores", **numbers)
