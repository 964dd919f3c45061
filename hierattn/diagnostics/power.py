"""Could these outputs have shown a departure? Rivals of the law, simulated and tested in the outputs' place."""

from typing import Any

import numpy as np

from hierattn.base.reasons import reason
from hierattn.diagnostics import testing
from hierattn.diagnostics.departures.registry import RIVALS
from hierattn.diagnostics.examination import Examination, data_sets

POWER = 0.9  # with which a departure must have been seen for its absence to mean something
FEWEST = 10  # networks below which nothing is decided by the absence of departures
CURVE = (2, 3, 5, 8, 12, 20, 32, 50, 80, 125, 200, 320, 500, 800, 1250)  # networks for which power is looked at


def power(found: Examination, networks: int, seed: int, number: int = 500) -> dict[str, float]:
    """Probability that so many networks of each rival would have been refused, by its name."""
    rng, pools = np.random.default_rng(seed + 2), found.reference
    drawn = data_sets(pools.law, pools.view, networks, testing.REPLICATES, rng)
    at = testing.expected(pools, drawn, found.at.free)
    null, level = testing.numbers(at, drawn), testing.LEVEL / len(found.p_values)
    result = {}
    for name, pool in pools.rivals.items():
        rivals = data_sets(pool, pools.view, networks, number, rng)
        p = testing.p_values(testing.numbers(at, rivals), null)
        result[name] = float(np.mean(np.min(list(p.values()), axis=0) < level))
    for name, rival in RIVALS.items():
        known = rival.probability and rival.probability(at.free, at.error_of_log_score_scale, level)
        result |= {} if known is None else {name: known}
    return result


def lacking(powers: dict[str, float], networks: int) -> list[dict[str, Any]]:
    """Why the absence of departures means nothing; empty if it does mean something."""
    reasons = []
    for name, seen in powers.items():
        if seen < POWER:
            message = f"{networks} networks would have shown {RIVALS[name].words} with probability {seen:.2g} only"
            reasons.append(reason("low_power", message, power=seen, networks=networks))
    if networks < FEWEST:
        reasons.append(reason("low_power", f"{networks} networks only, fewer than {FEWEST}", networks=networks))
    return reasons


def curve(found: Examination, observed: int, seed: int, number: int = 200) -> dict[int, dict[str, float]]:
    """Power for other numbers of networks, as far as there are enough simulated ones, and it is in doubt or was observed."""
    result: dict[int, dict[str, float]] = {}
    for networks in CURVE:
        if 4 * networks > len(found.reference.law):
            break
        result[networks] = power(found, networks, seed, number)
        if networks >= observed and min(result[networks].values()) > 0.99:
            break
    return result


def needed(powers: dict[int, dict[str, float]], name: str) -> int | None:
    """The fewest networks looked at from which on the power suffices; None if none do."""
    enough = [networks for networks, row in powers.items() if row[name] >= POWER]
    return min(enough) if enough else None
