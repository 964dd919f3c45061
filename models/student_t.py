"""A heavy-tailed rival without the hierarchy: every coordinate has a scale of its own, none is shared by a network.

K                          ~ LKJ
y | K, value_scale, nu     ~ multivariate Student t with nu degrees of freedom and scale matrix value_scale^2 K
"""

import math
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from hierattn.base.errors import unusable
from hierattn.law.plates import SecondMoments, choose, observe, plates


def priors(scale: float = 1.0) -> dict[str, Any]:
    """Degrees of freedom nu between 2.4 and 56 nineteen times in twenty: from tails without variance to nearly Gaussian."""
    return {"value_scale": dist.LogNormal(math.log(scale), 1.0), "nu": dist.Gamma(2.0, 0.1), "concentration": 1.0}


def model(tokens: int, outputs: Any = None, networks: int = 1, coordinates: int = 1, prior: dict | None = None) -> None:
    """At least two tokens; of one there is no correlation to infer."""
    if tokens < 2:
        raise unusable("tokens", "at least 2 tokens", tokens)
    if isinstance(outputs, SecondMoments):
        raise unusable("outputs", "the outputs themselves", "their second moments", "no other numbers suffice for Student's t")
    prior = choose(priors(), prior)
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    nu = numpyro.sample("nu", prior["nu"])
    L = numpyro.sample("L", dist.LKJCholesky(tokens, prior["concentration"]))
    numpyro.deterministic("K", L @ L.T)
    network, coordinate, y = plates(outputs, tokens, networks, coordinates)
    with network:
        observe(dist.MultivariateStudentT(nu, jnp.zeros(tokens), value_scale * L), coordinate, y)
