"""The law of a wide layer whose heads have a fixed inner dimension n_H, as real Transformers do.

B, D                ~ Bartlett factors of Wishart_{n_H}(I)              keys and values, one each a group of heads
p | score_scale     = score_scale L E (L B)' / sqrt(n_H),  E ~ N(0, I)  scores: Gaussian given the keys
y | p, D            ~ N(0, value_scale^2 H^{-1} sum_a A_a L D_a D_a' L' A_a' / n_H)
"""

from typing import Any

import numpyro

from hierattn.base.errors import unusable
from hierattn.law.distributions import Outputs, score_base, wishart_factor
from hierattn.law.plates import choose, law_of, observe, plates
from hierattn.layer.architecture import Architecture
from hierattn.models.limit_law import priors

__all__ = ["model", "priors"]


def model(
    layer: Architecture,
    K: Any,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
    query_kernel: Any = None,
) -> None:
    """The same parameters as the limit law; layer.head_dim is known."""
    if layer.head_dim is None:
        raise unusable("head_dim", "a finite head dimension", None, "use the model limit_law")
    prior = choose(priors(), prior)
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    law = law_of(layer.with_scales(score_scale, value_scale), K, query_kernel)
    base = score_base(law)
    network, coordinate, y = plates(outputs, law.shape[0], networks, coordinates)
    with network:
        drawn: list[Any] = [None if each is None else numpyro.sample(name, each) for name, each in base._asdict().items()]
        D = numpyro.sample("D", wishart_factor(law))
        p = numpyro.deterministic("p", law.scores_from(*drawn))
        observe(Outputs(law, p, D), coordinate, y)
