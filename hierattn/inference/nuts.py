"""Plain NUTS over a model's parameters and scores together: any file of models/, or a user's own."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro.handlers import seed as seeded
from numpyro.handlers import trace
from numpyro.infer import MCMC, NUTS, init_to_value

from hierattn.errors import unusable
from hierattn.inference.checkpoints import Checkpoint, in_chunks
from hierattn.inference.problem import Problem
from hierattn.modelling import reduced

WARM_UP, CHUNK = 500, 100
NEEDED = ("outputs", "networks", "coordinates")  # arguments of every model
STATISTICS = {
    "diverging": "diverging",
    "energy": "energy",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
    "potential_energy": "lp",
}


def arguments(problem: Problem, width: int | None, observed: bool) -> dict[str, Any]:
    """What the model's function takes, by name."""
    obs, names = problem.observations, _parameters(problem.model.model)
    known: dict[str, Any] = {"layer": problem.layer, "tokens": obs.s, "networks": obs.networks, "prior": problem.prior or None}
    if "K" in names:
        tokens = obs.tokens
        known |= {"layer": problem.observed_layer, "K": problem.K, "query_kernel": problem.K[..., tokens[:, None], tokens]}
    if "width" in names:
        if width is None:
            raise unusable("width", "the width of the networks", None, f"the model {problem.name} needs it")
        known["width"] = width
    if observed:
        basis = problem.basis if "K" in names and problem.takes_second_moments else None
        known["outputs"] = reduced(obs.S, obs.coordinates, basis) if problem.takes_second_moments else _raw(problem)
    without = [name for name in NEEDED if name not in names]
    if without:
        raise unusable("model", f"a function with the arguments {', '.join(NEEDED)}", f"one without {', '.join(without)}")
    chosen = {name: value for name, value in known.items() if name in names}
    lacking = [name for name, x in names.items() if x.default is x.empty and name not in chosen]
    if lacking:
        raise unusable("model", f"arguments among {', '.join(known)}", ", ".join(lacking), "give the others defaults")
    return chosen


def _parameters(function: Any) -> Any:
    """Of a model's function, beneath NumPyro's handlers."""
    while hasattr(function, "fn"):
        function = function.fn
    return inspect.signature(function).parameters


def _raw(problem: Problem) -> np.ndarray:
    if not problem.observations.complete:
        remedy = "give fewer coordinates"
        raise unusable("outputs", "outputs that fit in memory whole", f"{problem.observations.coordinates} coordinates", remedy)
    return np.asarray(problem.observations.outputs, float)


def sites(problem: Problem, kwargs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the parameters, drawn or computed, and of the latent variables that every network has for itself."""
    found = trace(seeded(problem.model.model, 0)).get_trace(**kwargs)
    if "y" not in found or not {"network", "coordinate"} <= {plate.name for plate in found["y"].get("cond_indep_stack", ())}:
        raise unusable("model", "a site `y` under the plates `network` and `coordinate`", ", ".join(found))
    of_networks = lambda site: any(plate.name == "network" for plate in site.get("cond_indep_stack", ()))  # noqa: E731
    drawn = {name: site for name, site in found.items() if site["type"] == "sample" and not site["is_observed"]}
    computed = {name: site for name, site in found.items() if site["type"] == "deterministic"}
    parameters = [name for name, site in {**drawn, **computed}.items() if not of_networks(site)]
    return parameters, [name for name, site in drawn.items() if of_networks(site)]


def sample(
    problem: Problem,
    seed: int,
    chains: int,
    enough: Callable[[dict, dict], bool],
    width: int | None = None,
    checkpoint: Checkpoint | None = None,
    advance: Callable[[int], Any] = lambda draws: None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws (chain, draw, ...) of the parameters and statistics of the sampler, until they are enough."""
    kwargs = arguments(problem, width, observed=True)
    parameters, _ = sites(problem, kwargs)
    places = {"score_scale": 1.0, "value_scale": problem.observations.scale}
    admitted = {name: x for name, x in places.items() if name in problem.prior and problem.prior[name].support(x)}
    kernel = NUTS(problem.model.model, init_strategy=init_to_value(values=admitted))
    parallel = jax.local_device_count() >= chains
    method = "parallel" if parallel else "sequential"
    mcmc = MCMC(kernel, num_warmup=WARM_UP, num_samples=CHUNK, num_chains=chains, chain_method=method, progress_bar=False)
    keys = jax.random.PRNGKey(seed)

    def step(state: Any, k: int) -> tuple[Any, dict[str, np.ndarray]]:
        mcmc.post_warmup_state = state if k else None
        key = jax.tree.map(jax.numpy.asarray, state).rng_key if k else keys
        try:
            mcmc.run(key, **kwargs, extra_fields=tuple(STATISTICS))
        except RuntimeError as error:  # NumPyro's words for it are "Cannot find valid initial parameters"
            if k or "valid initial parameters" not in str(error):
                raise
            got = "none where it starts"
            raise unusable("model", "a finite density of the outputs", got, "are kernel, heads and prior right?") from None
        drawn = {name: x for name, x in mcmc.get_samples(group_by_chain=True).items() if name in parameters}
        statistics = {f"statistic_{name}": x for name, x in mcmc.get_extra_fields(group_by_chain=True).items()}
        advance(CHUNK + (0 if k else WARM_UP))
        return mcmc.last_state, jax.tree.map(np.asarray, drawn | statistics)

    like = partial(_initial_state, kernel, chains, kwargs)
    for done in in_chunks(step, like() if checkpoint is not None else None, checkpoint):
        joined = {name: np.concatenate([part[name] for part in done], axis=1) for name in done[0]}
        statistics = {STATISTICS[name.removeprefix("statistic_")]: x for name, x in joined.items() if "statistic_" in name}
        statistics["lp"] = -statistics["lp"]
        draws = {name: x for name, x in joined.items() if "statistic_" not in name}
        if enough(draws, statistics):
            return draws, statistics
    raise AssertionError("chunks never end by themselves")


def _initial_state(kernel: NUTS, chains: int, kwargs: dict[str, Any]) -> Any:
    """A state of the right shapes, to be filled from a checkpoint."""
    keys = jax.random.split(jax.random.PRNGKey(0), chains)
    return kernel.init(keys, WARM_UP, None, (), kwargs)
