"""The infinite-width law of an attention layer.

p | score_scale     ~ N(0, score_scale^2 K (x) K)                       scores, one set a network and head
y | p, value_scale  ~ N(0, value_scale^2 H^{-1} sum_a A_a K A_a')       coordinates of that network, A = softmax(p)
"""

import math
from typing import Any

import numpyro
import numpyro.distributions as dist

from hierattn.law.distributions import Outputs, Scores
from hierattn.law.plates import choose, law_of, non_centred, observe, plates
from hierattn.layer.architecture import Architecture


def priors(scale: float = 1.0, kernel: float = 1.0, normed: bool = False) -> dict[str, dist.Distribution]:
    """Weakly informative: scores within a factor 7 of 1, outputs of their scale, nineteen times in twenty.

    Scores have the standard deviation score_scale K_ii, and outputs at most value_scale K_ii^{1/2}; kernel: the mean K_ii.
    Of normed queries and keys score_scale is the gain, and the scores' standard deviation itself.
    """
    return {
        "score_scale": dist.LogNormal(0.0 if normed else -math.log(kernel) + 0.0, 1.0),
        "value_scale": dist.LogNormal(math.log(scale) - math.log(kernel) / 2, 1.0),
    }


@non_centred
def model(
    layer: Architecture,
    K: Any,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
    query_kernel: Any = None,
) -> None:
    """Scores are sampled non-centred: the latent variable is the standard normal E of p = score_scale L E L'."""
    prior = choose(priors(), prior)
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    law = law_of(layer.with_scales(score_scale, value_scale), K, query_kernel)
    network, coordinate, y = plates(outputs, law.shape[0], networks, coordinates)
    with network:
        p = numpyro.sample("p", Scores(law))
        observe(Outputs(law, p), coordinate, y)
