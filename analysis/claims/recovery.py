"""Recovery: on data from the law, intervals cover the truth as often as they say, ranks of the truth are uniform, and data that
do not follow the law are noticed. Designs (networks, tokens, heads, coordinates), one of them observed at one token only;
parameters are drawn from the prior of the fit, LogNormal(0, 0.5)."""

from functools import partial

import numpy as np
import numpyro.distributions as dist

from hierattn import Architecture
from hierattn.inference import calibration
from hierattn.inference.methods.networkwise import Networkwise

SEED = 0
DESIGNS = {
    "(50, 4, 1, 16)": (50, 4, 1, 16, None),
    "(30, 4, 2, 32), head_dim 16": (30, 4, 2, 32, None, 16),
    "(50, 4, 2, 16)": (50, 4, 2, 16, None),
    "(50, 4, 2, 256)": (50, 4, 2, 256, None),
    "(20000, 4, 1, 1), one token": (20_000, 4, 1, 1, [0]),
}
REPLICATES = 100
MOST_DRAWS = 3_000  # of fits to mutants
LOOK, SEEN = 10, 1e-4  # ten times less than for the law, since mutants are looked at up to ten times


def prior() -> dict:
    """Of both parameters, for data and for fits."""
    return {name: dist.LogNormal(0.0, 0.5) for name in calibration.PARAMETERS}


def case(networks: int, tokens: int, heads: int, coordinates: int, seen: list[int] | None, head_dim: int | None = None) -> dict:
    """90 % intervals cover 80 to 98 times in 100, ranks uniform at 1e-3."""
    layer, K = Architecture(heads=heads, head_dim=head_dim), np.eye(tokens)
    found = calibration.replicates(calibration.Design(layer, K, networks, coordinates, seen, prior()), REPLICATES, SEED)
    record = calibration.summarise(list(found))
    covered = all(80 <= record[f"{name}_covered_90"] <= 98 for name in calibration.PARAMETERS)
    uniform = all(value > 1e-3 for name, value in record.items() if name.endswith("p_value"))
    return {"passed": covered and uniform, **record}


def own_scores(layer, K, known, key, networks, coordinates):
    """Every coordinate with scores of its own."""
    y = calibration.draw_outputs(layer, K, known, key, networks * coordinates, 1)
    return np.moveaxis(y.reshape(networks, coordinates, -1), 1, -1)


def changed(layer, K, known, key, networks, coordinates, score_scale=1.0, factor=1.0, **fields):
    """Another score_scale, another scale of the outputs, one head in the place of two with the same scores, a head_dim."""
    known = known | {"score_scale": score_scale * known["score_scale"]}
    return factor * calibration.draw_outputs(layer.replace(**fields), K, known, key, networks, coordinates)


MUTANTS = {  # with as many replicates as it takes to notice them, at most
    "score_scale off by 10 %": (partial(changed, score_scale=1.1), 40),
    "1 / sqrt(H) dropped": (partial(changed, factor=2**0.5), 40),
    "heads correlated": (partial(changed, heads=1), 40),
    "head_dim 16 taken as infinite": (partial(changed, head_dim=16), 100),
    "coordinates with their own scores": (own_scores, 100),
}


def mutant(draw, number: int) -> dict:
    """Data that do not follow the law: ranks are not uniform. Looked at every LOOK replicates, up to this number."""
    layer = Architecture(heads=2)
    method = Networkwise(most_draws=MOST_DRAWS)  # fits to data of another law may never converge
    design = calibration.Design(layer, np.eye(4), 50, 16, None, prior(), draw=draw, method=method)
    found, seen, record = [], False, {}
    for replicate in calibration.replicates(design, number, SEED):
        found.append(replicate)
        if len(found) % LOOK == 0:
            record = calibration.summarise(found)
            seen = any(value < SEEN for name, value in record.items() if name.endswith("p_value"))
            if seen:
                break
    return {"passed": seen, **record}


CASES = {name: partial(case, *design) for name, design in DESIGNS.items()}
CASES |= {f"mutant: {name}": partial(mutant, *how) for name, how in MUTANTS.items()}
