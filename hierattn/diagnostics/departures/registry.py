"""All departures, in the order in which tables show them: everything else asks this list."""

from hierattn.diagnostics.departures import (
    coordinates,
    gaussian,
    kernel,
    no_shared_scores,
    normalised,
    pairing,
    scale,
    score_scale,
    spread,
)

DEPARTURES = tuple(
    each.DEPARTURE
    for each in (scale, score_scale, kernel, pairing, spread, coordinates, normalised, gaussian, no_shared_scores)
)
CODES = {departure.code: departure for departure in DEPARTURES}
TESTED = {departure.test.name: departure for departure in DEPARTURES if departure.test}  # by the name of the p-value
TESTS = tuple(departure.test for departure in DEPARTURES if departure.test)
RIVALS = {departure.rival.name: departure.rival for departure in DEPARTURES if departure.rival}
