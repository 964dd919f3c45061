"""What the models share: their law, plates, observed outputs, priors."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.handlers import reparam
from numpyro.infer.reparam import TransformReparam

from hierattn.base.errors import unusable
from hierattn.law.law import Law
from hierattn.layer import kernels
from hierattn.layer.architecture import Architecture


class SecondMoments(NamedTuple):
    """Outputs of networks reduced to what Gaussians see of them: columns R with R R' = Y Y', and how many coordinates Y had."""

    R: Float[Array | np.ndarray, "network token column"]
    coordinates: int


def reduced(S: Float[np.ndarray, "network s s"], coordinates: int, basis: np.ndarray | None = None) -> SecondMoments:
    """From the sums S of y y' over coordinates; columns lie on the subspace of a basis to the last digit."""
    if basis is not None:
        return SecondMoments(basis @ reduced(basis.T @ S @ basis, coordinates).R, coordinates)
    values, vectors = np.linalg.eigh(S)
    return SecondMoments(vectors * np.sqrt(values.clip(0))[:, None], coordinates)


class Observed(NamedTuple):
    """Outputs as a model observes them, (coordinate, network, token), and how many coordinates they stand for beyond these."""

    y: Array
    more: int


def law_of(layer: Architecture, K: Any, query_kernel: Any = None) -> Law:
    """The law for a kernel, (tokens, tokens), or one a network; query_kernel where fewer tokens are observed."""
    if np.ndim(K) == 2:
        return Law(layer, K, query_kernel)
    K_q = None if query_kernel is None else kernels.factor(kernels.check(query_kernel, "query_kernel"))
    return Law.from_factors(layer, kernels.factor(kernels.check(K)), K_q)


def non_centred(model: Callable[..., None]) -> Callable[..., None]:
    """A model whose scores `p` are sampled as the standard normals `p_base` behind them; name, signature and words stay."""
    handled = reparam(model, config={"p": TransformReparam()})

    @wraps(model)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        return handled(*args, **kwargs)

    return wrapped


def plates(outputs: Any, tokens: int, networks: int, coordinates: int) -> tuple[numpyro.plate, numpyro.plate, Observed | None]:
    """The plates of a model, and outputs (network, token, coordinate), or their second moments, as it observes them.

    Coordinates are the outer axis, so that what belongs to a network alone, its scores, has no empty axis for them.
    """
    more = 0
    if isinstance(outputs, SecondMoments):
        outputs, more = outputs.R, outputs.coordinates - outputs.R.shape[-1]
    if outputs is not None:
        if jnp.ndim(outputs) != 3 or jnp.shape(outputs)[1] != tokens:
            raise unusable("outputs", f"shape (networks, {tokens}, coordinates)", jnp.shape(outputs))
        if not isinstance(outputs, jax.core.Tracer) and not np.all(np.isfinite(outputs)):
            raise unusable("outputs", "finite numbers", f"{np.sum(~np.isfinite(outputs))} NaN or infinite")
        networks, coordinates = jnp.shape(outputs)[0], jnp.shape(outputs)[2]
    for name, number in (("networks", networks), ("coordinates", coordinates)):
        if not isinstance(number, (int, np.integer)) or number < 1:
            raise unusable(name, "a positive whole number", repr(number))
    observed = None if outputs is None else Observed(jnp.moveaxis(jnp.asarray(outputs), -1, 0), more)
    return numpyro.plate("network", networks, dim=-1), numpyro.plate("coordinate", coordinates, dim=-2), observed


def observe(law_of_outputs: dist.Distribution, coordinate: numpyro.plate, observed: Observed | None) -> None:
    """The outputs y of the networks of a plate, coordinates independent.

    For second moments of Gaussians, R stands for the coordinates; those that it lacks (or has too many) add the density at 0.
    Outputs are held against their law in its dtype, whatever they were stored in.
    """
    dtype = jnp.result_type(float, *jax.tree.leaves(law_of_outputs)) if observed is not None else None
    with coordinate:
        y = None if observed is None else observed.y.astype(dtype)
        numpyro.sample("y", law_of_outputs, obs=y, infer={"event_dims": ["token"]})
    if observed is not None and observed.more:
        numpyro.factor("more", observed.more * law_of_outputs.log_prob(jnp.zeros(law_of_outputs.event_shape, dtype)))


def choose(priors: dict[str, Any], given: dict[str, Any] | None) -> dict[str, Any]:
    """A model's priors, with those given in place of its own; a name it does not know is an error."""
    unknown = set(given or {}) - set(priors)
    if unknown:
        raise unusable("prior", "only " + ", ".join(priors), ", ".join(sorted(unknown)))
    return priors | (given or {})
