"""Outputs are heavy-tailed, but the coordinates of a network do not share its scores."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Rival, Simulated


def outputs(simulated: Simulated, rng: np.random.Generator) -> np.ndarray:
    """Each coordinate from another network with the same kernel."""
    y, k = simulated.y, simulated.view.kernels
    if k == 1:
        return np.stack([y[rng.permutation(len(y)), :, c] for c in range(y.shape[2])], axis=-1)
    networks = np.arange(len(y)).reshape(-1, k)  # those of one kernel in a column
    return np.stack([y[rng.permuted(networks, axis=0).ravel(), :, c] for c in range(y.shape[2])], axis=-1)


DEPARTURE = Departure(
    code="no_shared_scores",
    looked_at="whether the coordinates of a network are large and small together",
    points_to="coordinates that do not belong to one network",
    remedy="is the first axis of the outputs the network and the last the coordinate of one network? Were coordinates "
    "shuffled, or rescaled one by one?",
    rival=Rival("own", "coordinates that share no scores", outputs),
)


def explain(numbers: dict[str, float]) -> dict[str, Any]:
    """Heavy tails without anything in common."""
    return DEPARTURE.reason("coordinates are heavy-tailed, but those of one network share no scores", **numbers)


def explain_by_both(within: float, p_value: float) -> dict[str, Any]:
    """Too little between networks, too much inside them."""
    message = "networks differ less, and coordinates of one network more, than shared scores allow"
    return DEPARTURE.reason(message, within=within, p_value=p_value)
