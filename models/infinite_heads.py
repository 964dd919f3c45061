"""The Gaussian limit of infinitely many heads (Hron et al. 2020): the same second moments as the law, no hierarchy.

    y | score_scale, value_scale  ~ N(0, value_scale^2 E_p[A K A']),   p ~ N(0, score_scale^2 K (x) K)

The expectation is an average over fixed quasi-random scores, so that it is a smooth function of score_scale.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from hierattn.architecture import Architecture
from hierattn.distributions import dims, plates, score_base
from hierattn.law import Law
from hierattn.models.limit_law import priors
from hierattn.rqmc import normal_points

__all__ = ["model", "priors"]


def model(
    layer: Architecture,
    K: Any,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
    points: int = 1024,
) -> None:
    """All networks are alike and all coordinates independent: nothing is drawn between the parameters and y."""
    prior = priors() | (prior or {})
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    one_head = layer.replace(heads=1, head_dim=None, key_value_heads=None)
    law = Law(one_head.with_scales(score_scale, value_scale), K)
    E = jnp.asarray(normal_points(score_base(law)[0].event_shape, points), law.dtype)
    Sigma = numpyro.deterministic("Sigma", law.Sigma(law.scores_from(E)).mean(axis=0))
    network, coordinate, y = plates(outputs, networks, coordinates)
    with network, coordinate:
        numpyro.sample("y", dist.MultivariateNormal(covariance_matrix=Sigma), obs=y, infer=dims("token"))
