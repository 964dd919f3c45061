"""Scores divided by n instead of sqrt(n) (Yang 2019), at a large but finite width n.

    p | score_scale     ~ N(0, score_scale^2 K (x) K / n)
    y | p, value_scale  ~ N(0, value_scale^2 H^{-1} sum_a A_a K A_a')

At infinite width p vanishes, all tokens have the same output and no density exists; hence the width.
"""

from typing import Any

import numpyro

from hierattn.base.errors import unusable
from hierattn.law.distributions import Outputs, Scores
from hierattn.law.plates import choose, law_of, non_centred, observe, plates
from hierattn.layer.architecture import Architecture
from hierattn.models.limit_law import priors

__all__ = ["model", "priors"]


@non_centred
def model(
    layer: Architecture,
    K: Any,
    width: int,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
    query_kernel: Any = None,
) -> None:
    """The limit law with the scores' scale divided by sqrt(width)."""
    if not width >= 1:
        raise unusable("width", "a positive number", width)
    prior = choose(priors(), prior)
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    law = law_of(layer.replace(scaling="sqrt").with_scales(score_scale * width**-0.5, value_scale), K, query_kernel)
    network, coordinate, y = plates(outputs, law.shape[0], networks, coordinates)
    with network:
        p = numpyro.sample("p", Scores(law))
        observe(Outputs(law, p), coordinate, y)
