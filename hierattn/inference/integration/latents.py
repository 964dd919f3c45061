"""Any model's likelihood of each network with the network's latent variables integrated out.

What a model draws inside its plate `network` is integrated by `evidence`, in unconstrained coordinates, for given parameters.
That takes a while, so it is done at some posterior draws, and a plane in the parameters, network by network, is laid through:
what that leaves over is the error. Without such variables every draw is computed directly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import biject_to

from hierattn.inference.calling import arguments, sites
from hierattn.inference.integration.evidence import Density, anneal
from hierattn.inference.integration.integrated import Integrated
from hierattn.inference.problem import Problem

PARTICLES, PLACES, FEWEST_PLACES = 64, 24, 6
WORK = 2**22  # latent numbers of particles, over all places
DIRECT = 400  # draws computed directly


def integrated_likelihood(problem: Problem, draws: dict[str, np.ndarray], width: int | None, seed: int) -> Integrated | None:
    """Log likelihood of every network at every draw (chain, draw, ...), flat; None if that would take too long."""
    kwargs = arguments(problem, width, observed=True)
    parameters, latents = sites(problem, kwargs)
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items() if name in parameters}
    number = len(next(iter(flat.values())))
    if not latents:
        chosen = np.unique(np.linspace(0, number - 1, DIRECT).astype(int))
        evaluate = jax.jit(lambda values: _likelihood(problem, kwargs, values))
        found = np.stack([np.asarray(evaluate({name: x[d] for name, x in flat.items()})) for d in chosen])
        return plane(flat, chosen, found) if len(chosen) < number else Integrated(found, np.zeros(found.shape[1]))
    shapes = _shapes(problem, kwargs, latents)
    size = problem.observations.networks * sum(int(np.prod(shape)) for shape in shapes.values())
    places = min(PLACES, WORK // (size * PARTICLES))
    if places < FEWEST_PLACES:
        return None
    chosen = np.unique(np.linspace(0, number - 1, places).astype(int))
    run = jax.jit(lambda values, key: _evidence(problem, kwargs, values, shapes, key))
    keys = jax.random.split(jax.random.key(seed), len(chosen))
    found = np.stack([np.asarray(run({n: x[d] for n, x in flat.items()}, k)) for d, k in zip(chosen, keys, strict=True)])
    return plane(flat, chosen, found)


def plane(draws: dict[str, np.ndarray], chosen: np.ndarray, values: Float[np.ndarray, "place network"]) -> Integrated:
    """A plane in the parameters through values at the chosen draws, along the axes in which the draws vary most."""
    x = np.concatenate([np.asarray(d, float).reshape(len(d), -1) for d in draws.values()], axis=1)
    x = x[:, np.ptp(x, axis=0) > 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    axes = np.linalg.svd(x, full_matrices=False)[2][: len(chosen) // 3]
    features = np.column_stack([np.ones(len(x)), x @ axes.T])
    coefficients = np.linalg.lstsq(features[chosen], values)[0]
    rest = values - features[chosen] @ coefficients
    freedom = len(chosen) - features.shape[1]
    return Integrated(features @ coefficients, np.sqrt((rest**2).sum(axis=0) / freedom * features.shape[1] / len(chosen)))


def _traced(problem: Problem, kwargs: dict[str, Any], values: dict[str, Array]) -> dict[str, Any]:
    return handlers.trace(handlers.substitute(handlers.seed(problem.model.model, 0), values)).get_trace(**kwargs)


def _likelihood(problem: Problem, kwargs: dict[str, Any], values: dict[str, Array]) -> Float[Array, " network"]:
    """Log likelihood of every network given all its variables."""
    found = _traced(problem, kwargs, values)
    value = jnp.sum(found["y"]["fn"].log_prob(found["y"]["value"]), axis=0)
    return value + (found["more"]["fn"].log_prob(found["more"]["value"]) if "more" in found else 0)


def _shapes(problem: Problem, kwargs: dict[str, Any], latents: list[str]) -> dict[str, tuple[int, ...]]:
    """Unconstrained shape of each latent variable of a network."""
    found = handlers.trace(handlers.seed(problem.model.model, 0)).get_trace(**kwargs)
    transforms = {name: biject_to(found[name]["fn"].support) for name in latents}
    return {name: transforms[name].inverse_shape(found[name]["fn"].event_shape) for name in latents}


class Unconstrained(NamedTuple):
    """Latent variables of the networks as vectors x (dim, network): their priors, transforms and unconstrained shapes."""

    networks: int
    shapes: dict[str, tuple[int, ...]]
    priors: dict[str, Any]
    transforms: dict[str, Any]

    def split(self, x: Float[Array, "dim network"]) -> dict[str, Array]:
        """By variable, networks first, not yet transformed."""
        parts = jnp.split(x, np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])[:-1])
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.T.reshape(self.networks, *shape) for (name, shape), part in named}

    def values(self, x: Array) -> dict[str, Array]:
        """As the model knows them."""
        return {name: self.transforms[name](value) for name, value in self.split(x).items()}

    def log_prior(self, x: Array) -> Float[Array, " network"]:
        """Log density of x."""
        total = jnp.zeros(self.networks)
        for name, value in self.split(x).items():
            y = self.transforms[name](value)
            volume = self.transforms[name].log_abs_det_jacobian(value, y)
            total += self.priors[name].log_prob(y) + jnp.sum(volume.reshape(self.networks, -1), axis=1)
        return total

    def draw(self, rng_key: Array) -> Float[Array, "dim network"]:
        """X from its prior."""
        parts = []
        for name, key in zip(self.shapes, jax.random.split(rng_key, len(self.shapes)), strict=True):
            y = self.priors[name].sample(key, () if self.priors[name].batch_shape else (self.networks,))
            parts.append(self.transforms[name].inv(y).reshape(self.networks, -1).T)
        return jnp.concatenate(parts)


def _evidence(
    problem: Problem, kwargs: dict[str, Any], parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]], rng_key: Array
) -> Float[Array, " network"]:
    """Log integrated likelihood of every network for given parameters, by one batch of particles."""
    found = _traced(problem, kwargs, parameters)
    priors = {name: found[name]["fn"] for name in shapes}
    transforms = {name: biject_to(priors[name].support) for name in shapes}
    latent = Unconstrained(problem.observations.networks, shapes, priors, transforms)

    def likelihood(x: Array) -> Array:
        return _likelihood(problem, kwargs, parameters | latent.values(x))

    def density(x: Array) -> Density:
        (prior, prior_gradient), (value, gradient) = _with_gradient(latent.log_prior, x), _with_gradient(likelihood, x)
        return Density(prior, value, prior_gradient, gradient)

    key_start, key_anneal = jax.random.split(rng_key)
    end = anneal(density, jax.vmap(latent.draw)(jax.random.split(key_start, PARTICLES)), key_anneal)
    return jnp.where(end.beta == 1, end.log_evidence, jnp.nan)


def _with_gradient(function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    value, back = jax.vjp(function, x)
    return value, back(jnp.ones_like(value))[0]
