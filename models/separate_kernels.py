"""Scores and values with kernels of their own: does the link between kappa and kappa' hold?

K_scores, K_values  ~ LKJ, independently                                in the law they are one matrix
p | K_scores        ~ N(0, score_scale^2 K_scores (x) K_scores)
y | p, K_values     ~ N(0, value_scale^2 H^{-1} sum_a A_a K_values A_a')
"""

from typing import Any

import numpyro
import numpyro.distributions as dist

from hierattn.base.errors import unusable
from hierattn.law.distributions import Outputs, Scores
from hierattn.law.law import Law
from hierattn.law.plates import choose, non_centred, observe, plates
from hierattn.layer.architecture import Architecture
from hierattn.models.kernel_unknown import priors

__all__ = ["model", "priors"]


@non_centred
def model(
    layer: Architecture, tokens: int, outputs: Any = None, networks: int = 1, coordinates: int = 1, prior: dict | None = None
) -> None:
    """At least two tokens; of one there is no correlation to infer."""
    if tokens < 2:
        raise unusable("tokens", "at least 2 tokens", tokens)
    prior = choose(priors(), prior)
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    L_scores = numpyro.sample("L_scores", dist.LKJCholesky(tokens, prior["concentration"]))
    L_values = numpyro.sample("L_values", dist.LKJCholesky(tokens, prior["concentration"]))
    numpyro.deterministic("K_scores", L_scores @ L_scores.T)
    numpyro.deterministic("K_values", L_values @ L_values.T)
    layer = layer.with_scales(score_scale, value_scale)
    network, coordinate, y = plates(outputs, tokens, networks, coordinates)
    with network:
        p = numpyro.sample("p", Scores(Law.from_factors(layer, L_scores)))
        observe(Outputs(Law.from_factors(layer, L_values), p), coordinate, y)
