"""What a model predicts: draws of its prior, and outputs of networks, new ones and those that were observed."""

import jax
import numpy as np
from jaxtyping import Float
from numpyro.infer import Predictive

from hierattn.base.float64 import in_float64
from hierattn.inference.calling import arguments, sites
from hierattn.inference.problem import Problem

PREDICTED = 2**22  # numbers in a predictive group
PRIOR_DRAWS = 1000


@in_float64
def from_prior(problem: Problem, width: int | None, seed: int) -> dict[str, np.ndarray]:
    """Draws (1, draw, ...) of all parameters from the prior: from their distributions themselves, if they stand alone."""
    kwargs = arguments(problem, width, observed=False)
    parameters, _ = sites(problem, kwargs)
    rng_key, shape = jax.random.key(seed), (1, PRIOR_DRAWS)
    if set(parameters) == set(problem.prior):
        keys = jax.random.split(rng_key, len(parameters))
        return {name: np.asarray(problem.prior[name].sample(key, shape)) for name, key in zip(parameters, keys, strict=True)}
    few = kwargs | {"coordinates": 1, "networks": problem.observations.networks if problem.K_each else 1}
    drawn = Predictive(problem.model.model, num_samples=PRIOR_DRAWS, return_sites=parameters)(rng_key, **few)
    return {name: np.asarray(x)[None] for name, x in drawn.items()}


@in_float64
def new_networks(
    problem: Problem, parameters: list[dict[str, np.ndarray]], width: int | None, seed: int
) -> list[Float[np.ndarray, "chain draw network token coordinate"]]:
    """Outputs of as many new networks as were observed, with fresh scores, for each of some sets of draws (chain, draw, ...).

    Of as many draws and coordinates as there is room for; in one call, since what takes time is to compile it.
    """
    obs = problem.observations
    each = obs.networks * obs.s
    coordinates = int(np.clip(PREDICTED // (100 * each), 1, obs.outputs.shape[-1]))
    number = int(np.clip(PREDICTED // (each * coordinates), 20, 500))
    thinned, shapes = [], []
    for draws in parameters:
        chains, length = next(iter(draws.values())).shape[:2]
        pick = np.linspace(0, length - 1, min(length, max(1, number // chains))).astype(int)
        shapes.append((chains, len(pick)))
        thinned.append({name: x[:, pick].reshape(-1, *x.shape[2:]) for name, x in draws.items()})
    together = {name: np.concatenate([draws[name] for draws in thinned]) for name in thinned[-1]}
    kwargs = arguments(problem, width, observed=False) | {"coordinates": coordinates}
    y = Predictive(problem.model.model, together, return_sites=["y"])(jax.random.key(seed), **kwargs)["y"]
    y = np.moveaxis(np.asarray(y), 1, -1)  # draw, network, token, coordinate
    ends = np.cumsum([chains * length for chains, length in shapes])[:-1]
    return [part.reshape(*shape, *y.shape[1:]) for part, shape in zip(np.split(y, ends), shapes, strict=True)]


def conditional(Sigma: np.ndarray, coordinates: int, seed: int) -> np.ndarray:
    """Outputs of the observed networks themselves, given their conditional covariances."""
    every = max(1, Sigma[..., 0].size * coordinates // PREDICTED)
    values, vectors = np.linalg.eigh(Sigma[:, ::every])
    root = vectors * np.sqrt(values.clip(0))[..., None, :]
    return root @ np.random.default_rng(seed).normal(size=(*root.shape[:-1], coordinates))


def log_prior(problem: Problem, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Log density of the prior of every parameter that has one, at the draws."""
    known = {name: prior for name, prior in problem.prior.items() if name in draws and hasattr(prior, "log_prob")}
    with jax.enable_x64(True):
        return {name: np.asarray(prior.log_prob(draws[name])) for name, prior in known.items()}
