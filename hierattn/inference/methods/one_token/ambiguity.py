"""Does more than one setting of the scales explain one token's outputs? Modes of a posterior, and twins of its mode.

A twin is another score_scale whose law is all but the same: a second maximum of the log likelihood that outputs of the law at
the mode are expected to have. Few networks leave one broad hump over both, and are told so as well.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from hierattn.inference.methods.one_token.surface import Squares, Surface, expected_squares, surface
from hierattn.inference.methods.one_token.variances import Table

LEAST_MASS = 0.01  # of a mode worth a word
SHALLOW = 0.98  # a valley that reaches this share of the lower peak separates nothing
NATS = 10.0  # to which the range of an expected log likelihood is scaled before peaks are looked for


def reasons(
    likelihood: Surface, laws: Table, data: Squares, x: np.ndarray, s: np.ndarray, density: np.ndarray
) -> list[dict[str, Any]]:
    """Modes of the posterior, if there is more than one or a twin of the one; or that score_scale does not matter."""
    if likelihood.flat:
        return [unidentified()]
    marginal = density.sum(axis=1)
    places, cuts = peaks(marginal)
    found, why = _modes(likelihood, x, s, density, places, cuts), "the posterior has more than one mode"
    if len(found) < 2:
        places, cuts = _twins(likelihood, laws, data, x, int(marginal.argmax()))
        found = _modes(likelihood, x, s, density, places, cuts)
        why = "the networks are too few to tell laws apart that are nearly the same"
    return two_modes(found, why)


def two_modes(modes: list[tuple[float, float, float]], why: str) -> list[dict[str, Any]]:
    """The reason that names modes (score_scale, value_scale, mass), if more than one carries mass."""
    found = [tuple(map(float, mode)) for mode in modes if mode[2] >= LEAST_MASS]
    if len(found) < 2:
        return []
    settings = " or ".join(f"({q:.3g}, {o:.3g}) with probability {mass:.2g}" for q, o, mass in found)
    message = f"{why}: (score_scale, value_scale) is near {settings}; observe more tokens to tell"
    numbers = dict(zip(("score_scale", "value_scale", "mass"), map(list, zip(*found, strict=True)), strict=True))
    return [{"code": "two_modes", "message": message, "numbers": numbers}]


def unidentified() -> dict[str, Any]:
    """The reason that score_scale does not matter."""
    message = "score_scale is not identified: outputs have the same distribution for all of its values, up to their scale"
    return {"code": "unidentified", "message": message, "numbers": {}}


def peaks(height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maxima that valleys separate, and the lowest point of each of these valleys."""
    filled = np.concatenate([[0.0], height, [0.0]])
    places = np.flatnonzero((filled[1:-1] >= filled[:-2]) & (filled[1:-1] > filled[2:]))
    while True:
        cuts = np.array([a + np.argmin(height[a:b]) for a, b in pairwise(places)], int)
        lower = np.minimum(height[places[:-1]], height[places[1:]])
        shallow = height[cuts] - SHALLOW * lower
        if not len(cuts) or shallow.max() < 0:
            return places, cuts
        pair = int(shallow.argmax())
        places = np.delete(places, pair + int(height[places[pair + 1]] <= height[places[pair]]))


def _modes(
    likelihood: Surface, x: np.ndarray, s: np.ndarray, density: np.ndarray, places: np.ndarray, cuts: np.ndarray
) -> list[tuple[float, float, float]]:
    """(score_scale, value_scale, mass) of modes at these places that carry mass."""
    masses = [part.sum() / density.sum() for part in np.split(density, cuts)]
    best = s[density[places].argmax(axis=1)]
    scales = np.exp(x[places]), np.exp(likelihood.log_o(x[places], best))
    found = zip(*scales, masses, strict=True)
    return [(float(q), float(o), float(mass)) for q, o, mass in found if mass >= LEAST_MASS]


def _twins(likelihood: Surface, laws: Table, data: Squares, x: np.ndarray, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and cuts on x: the mode, and maxima of the log likelihood expected at the mode."""
    g = int(np.abs(laws.log_q - x[mode]).argmin())
    expected = expected_squares(laws, g, data)
    s = np.linspace(*expected.range_s(NATS), 201)
    profile = surface(laws, expected, s[0], s[-1]).log_likelihood(x, s, grid=True).max(axis=1)
    height = np.exp((profile - profile.max()) * NATS / max(np.ptp(profile), 1e-300))
    places, cuts = peaks(height)
    own = int(np.searchsorted(cuts, mode, side="right"))
    return np.concatenate([places[:own], [mode], places[own + 1 :]]), cuts
