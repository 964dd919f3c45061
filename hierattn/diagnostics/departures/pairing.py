"""Kernels belong to other networks than those they were given to."""

from typing import Any

import numpy as np

from hierattn.diagnostics.departures.protocol import Departure, Held, Rival, Simulated, Test

IN_PART = 0.5  # slope from which on networks follow their own kernels in part


def number(held: Held) -> np.ndarray | None:
    """How much less networks follow their own kernels than they should; nothing to see where all kernels predict the same."""
    return None if held.view.own is None else held.moved * held.slope.pairing - held.off.pairing


def outputs(simulated: Simulated, rng: np.random.Generator) -> np.ndarray | None:
    """Networks of the law, kernels shuffled between them."""
    y, k = simulated.y, simulated.view.kernels
    if simulated.view.own is None:
        return None
    return y.reshape(-1, k, *y.shape[1:])[:, rng.permutation(k)].reshape(y.shape)


DEPARTURE = Departure(
    code="pairing",
    looked_at="whether each network follows its own kernel",
    points_to="kernels in another order than the networks",
    remedy="is each kernel that of its own network? Kernels or inputs must come in the order of the outputs' networks: look "
    "for a shuffled, sorted or reversed data set, and for kernels from another seed",
    test=Test("pairing", number, two_sided=False),
    rival=Rival("pairing", "kernels given to the wrong networks", outputs),
)


def explain(slope: float, law: float, numbers: dict[str, float]) -> dict[str, Any]:
    """Networks do not follow their own kernels, or only in part."""
    told = f"slope {slope:.2g}, where {law:.2g} is expected and 0 if they are in random order"
    message = f"the kernels are not those of these networks, or in another order: {told}"
    if slope > IN_PART:
        message = f"networks follow their own kernels only in part, so that some may be in another order: {told}"
    return DEPARTURE.reason(message, slope=slope, slope_law=law, **numbers)
