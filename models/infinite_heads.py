"""The Gaussian limit of infinitely many heads (Hron et al. 2020): the same second moments as the law, no hierarchy.

    y | score_scale, value_scale  ~ N(0, value_scale^2 E_p[A K A']),   p ~ N(0, score_scale^2 K (x) K)

The expectation is an average over fixed quasi-random scores, so that it is a smooth function of score_scale.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro

from hierattn.law.distributions import Gaussian, output_basis, score_base
from hierattn.law.plates import choose, law_of, observe, plates
from hierattn.layer.architecture import Architecture
from hierattn.models.limit_law import priors
from hierattn.numerics.rqmc import normal_points

__all__ = ["model", "priors"]


def model(
    layer: Architecture,
    K: Any,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
    query_kernel: Any = None,
    points: int = 1024,
) -> None:
    """All networks are alike and all coordinates independent: nothing is drawn between the parameters and y."""
    prior = choose(priors(), prior)
    score_scale = numpyro.sample("score_scale", prior["score_scale"])
    value_scale = numpyro.sample("value_scale", prior["value_scale"])
    layer = layer.with_scales(score_scale, value_scale).replace(head_dim=None, key_value_heads=None)
    if np.ndim(layer.bias) != 3:
        layer = layer.replace(heads=1)  # heads that are alike have one average
    law = law_of(layer, K, query_kernel)
    E = jnp.asarray(normal_points(score_base(law).E.event_shape, points), law.dtype)
    E = E if np.ndim(K) == 2 else E[:, None]  # one kernel a network
    Sigma = numpyro.deterministic("Sigma", law.Sigma(law.scores_from(E)).mean(axis=0))
    basis = output_basis(
        law if layer.heads > 1 else law_of(layer.replace(heads=law.shape[0]), K, query_kernel)
    )  # many span what all do
    root = jnp.linalg.cholesky(Sigma) if basis is None else basis @ jnp.linalg.cholesky(basis.T @ Sigma @ basis)
    network, coordinate, y = plates(outputs, law.shape[0], networks, coordinates)
    with network:
        observe(Gaussian(root, basis), coordinate, y)
