"""Plain NUTS over a model's parameters and scores together: any file of models/, or a user's own."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.handlers import seed as seeded
from numpyro.handlers import trace
from numpyro.infer import NUTS, init_to_value

from hierattn.base.errors import unusable
from hierattn.base.threads import in_threads
from hierattn.inference.checkpoints import Checkpoint, in_chunks
from hierattn.inference.problem import Problem
from hierattn.law.plates import reduced

WARM_UP, CHUNK = 5, 100  # chunks of adaptation, and draws of a chunk
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
    found: dict[str, Any] = {}
    jax.eval_shape(lambda: found.update(trace(seeded(problem.model.model, 0)).get_trace(**kwargs)))  # nothing is computed
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
    """Draws (chain, draw, ...) of the parameters and statistics of the sampler, until they are enough.

    One chain's chunk is compiled once, warm-up included, and chains are shared among threads.
    """
    kwargs = arguments(problem, width, observed=True)
    parameters, _ = sites(problem, kwargs)
    places = {"score_scale": 1.0, "value_scale": problem.observations.scale}
    admitted = {name: x for name, x in places.items() if name in problem.prior and problem.prior[name].support(x)}
    kernel = NUTS(problem.model.model, init_strategy=init_to_value(values=admitted))
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.PRNGKey(seed)))(jnp.arange(chains))
    try:
        states = [kernel.init(key, WARM_UP * CHUNK, None, (), kwargs) for key in keys]
    except RuntimeError as error:
        if "valid initial parameters" not in str(error):  # NumPyro's words
            raise
        got = "none where it starts"
        raise unusable("model", "a finite density of the outputs", got, "are kernel, heads and prior right?") from None

    @jax.jit
    def run(state: Any) -> tuple[Any, dict[str, Array]]:
        def one(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
            state = kernel.sample(state, (), kwargs)
            values = kernel.postprocess_fn((), kwargs)(state.z)
            kept = {name: values[name] for name in parameters}
            return state, kept | {f"statistic_{name}": getattr(state, name) for name in STATISTICS}

        return jax.lax.scan(one, state, length=CHUNK)

    def step(states: list, k: int) -> tuple[list, dict[str, np.ndarray]]:
        found = in_threads(run, jax.tree.map(jnp.asarray, states), compiled=k > 0)
        advance(CHUNK)
        draws = jax.tree.map(lambda *x: np.stack([np.asarray(a) for a in x]), *(draws for _, draws in found))
        return [state for state, _ in found], draws if k >= WARM_UP else {}

    for done in in_chunks(step, states, checkpoint):
        sampled = done[WARM_UP:]
        if not sampled:
            continue
        joined = {name: np.concatenate([part[name] for part in sampled], axis=1) for name in sampled[0]}
        statistics = {STATISTICS[name.removeprefix("statistic_")]: x for name, x in joined.items() if "statistic_" in name}
        statistics["lp"] = -statistics["lp"]
        draws = {name: x for name, x in joined.items() if "statistic_" not in name}
        if enough(draws, statistics):
            return draws, statistics
    raise AssertionError("chunks never end by themselves")
