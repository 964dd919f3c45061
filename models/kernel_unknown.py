"""The infinite-width law when the inputs were not observed: K is inferred too.

    K = L L'            ~ LKJ                                               a correlation matrix: tokens of one norm
    p | K, score_scale  ~ N(0, score_scale^2 K (x) K)
    y | p, value_scale  ~ N(0, value_scale^2 H^{-1} sum_a A_a K A_a')

The norm of the inputs cannot be told from the two scales, hence the unit diagonal.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from hierattn.base.errors import unusable
from hierattn.law.distributions import Outputs, Scores
from hierattn.law.law import Law
from hierattn.law.plates import choose, non_centred, observe, plates
from hierattn.layer.architecture import Architecture
from hierattn.models import limit_law


def priors(scale: float = 1.0) -> dict[str, Any]:
    """Those of the limit law; `concentration` 1 makes all correlation matrices equally likely."""
    return limit_law.priors(scale) | {"concentration": 1.0}


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
    L = numpyro.sample("L", dist.LKJCholesky(tokens, prior["concentration"]))
    numpyro.deterministic("K", L @ L.T)
    law = Law.from_factors(layer.with_scales(score_scale, value_scale), jnp.asarray(L))
    network, coordinate, y = plates(outputs, tokens, networks, coordinates)
    with network:
        p = numpyro.sample("p", Scores(law))
        observe(Outputs(law, p), coordinate, y)
