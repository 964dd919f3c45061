"""Plain NUTS over a model's parameters and scores together: any file of models/, or a user's own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.infer import NUTS, init_to_value

from hierattn.base.errors import unusable
from hierattn.base.threads import in_threads
from hierattn.inference.calling import arguments, sites
from hierattn.inference.checkpoints import in_chunks
from hierattn.inference.integration.integrated import Integrated
from hierattn.inference.integration.latents import integrated_likelihood
from hierattn.inference.methods.protocol import Method, Run
from hierattn.inference.problem import Posterior, Problem
from hierattn.inference.verdict import convergence

WARM_UP, CHUNK, MOST_DRAWS = 5, 100, 2_000  # chunks of adaptation, draws of a chunk, draws of a chain at most
USUAL_DRAWS, LIKELIHOODS = 500, 500  # draws of a chain that usually suffice, and that cost about as much as the likelihoods
STATISTICS = {
    "diverging": "diverging",
    "energy": "energy",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
    "potential_energy": "lp",
}
MORE = "allow more draws (--most-draws)"
TO_DO = {
    "rhat": f"{MORE}, or give narrower priors",
    "ess": MORE,
    "divergences": "give narrower priors, or observe fewer tokens: the posterior is too sharply bent for the step size",
    "ebfmi": "give narrower priors: the posterior's tails are too long for these steps",
    "stuck": "look at kernel, heads and prior: nothing moves where the chains are",
}

Sampled = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]  # draws and statistics, by name


@dataclass(frozen=True)
class Nuts(Method):
    """NumPyro's sampler, in chunks. warm_up: chunks of adaptation; chunk: its draws; most_draws: of a chain."""

    name = "nuts"
    sampled = True
    warm_up: int = WARM_UP
    chunk: int = CHUNK
    most_draws: int = MOST_DRAWS

    def refuses(self, problem: Problem) -> str | None:
        """Nothing: any program can be sampled."""
        return None

    def prefers(self, problem: Problem) -> str | None:
        """It is asked last."""
        return "no other method fits this model: its parameters and all scores are sampled together, which takes long"

    @property
    def most_steps(self) -> int:
        """Adaptation and draws."""
        return self.warm_up_steps + self.most_draws

    @property
    def warm_up_steps(self) -> int:
        """Adaptation."""
        return self.warm_up * self.chunk

    @property
    def usual_steps(self) -> int:
        """Adaptation, and what usually suffices."""
        return self.warm_up_steps + min(USUAL_DRAWS, self.most_draws)

    @property
    def likelihood_steps(self) -> int:
        """Particles move as often."""
        return LIKELIHOODS

    def sample(self, problem: Problem, run: Run) -> Posterior:
        """Chains until they agree, or until there are `most_draws`."""
        draws, statistics = self.sample_until(problem, run, partial(self._enough, run))
        return Posterior(draws, statistics, self.name)

    def sample_until(self, problem: Problem, run: Run, enough: Callable[[dict, dict], bool]) -> Sampled:
        """Draws (chain, draw, ...) of the parameters and statistics of the sampler, until they are enough.

        One chain's chunk is compiled once, warm-up included, and chains are shared among threads.
        """
        kwargs = arguments(problem, run.width, observed=True)
        kernel = NUTS(problem.model.model, init_strategy=init_to_value(values=start(problem, kwargs)))
        states = _states(kernel, kwargs, run, self.warm_up * self.chunk)
        one_chunk = _chunk(kernel, kwargs, sites(problem, kwargs)[0], self.chunk)

        def step(states: list, k: int) -> tuple[list, dict[str, np.ndarray]]:
            found = in_threads(one_chunk, jax.tree.map(jnp.asarray, states), compiled=k > 0)
            run.advance(self.chunk)
            draws = jax.tree.map(lambda *x: np.stack([np.asarray(a) for a in x]), *(draws for _, draws in found))
            return [state for state, _ in found], draws if k >= self.warm_up else {}

        for done in in_chunks(step, states, run.checkpoint):
            sampled = done[self.warm_up :]
            if sampled and enough(*(found := _joined(sampled))):
                return found
        raise AssertionError("chunks never end by themselves")

    def _enough(self, run: Run, draws: dict[str, np.ndarray], statistics: dict[str, np.ndarray]) -> bool:
        return run.ends(next(iter(draws.values())).shape[1] >= self.most_draws, convergence(draws, statistics))

    def log_likelihood(self, problem: Problem, found: Posterior, run: Run) -> Integrated | str:
        """By sequential Monte Carlo at some draws, and a plane through them."""
        result = integrated_likelihood(problem, found.draws, run.width, run.seed)
        return "its networks have too many scores to integrate out" if result is None else result

    def advice(self, problem: Problem, code: str) -> str:
        """By the kind of trouble."""
        return TO_DO[code]


def start(problem: Problem, kwargs: dict[str, Any]) -> dict[str, float]:
    """Scores of size one, outputs as large as they are; where the prior excludes that, wherever it likes."""
    size, of_scores = (problem.kernel_size, problem.score_size) if "K" in kwargs else (1.0, 1.0)
    places = {"score_scale": 1 / of_scores, "value_scale": problem.observations.scale * size**-0.5}
    return {name: x for name, x in places.items() if name in problem.prior and problem.prior[name].support(x)}


def _states(kernel: NUTS, kwargs: dict[str, Any], run: Run, warm_up: int) -> list:
    """A first state for every chain."""
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.PRNGKey(run.seed)))(jnp.arange(run.chains))
    try:
        return [kernel.init(key, warm_up, None, (), kwargs) for key in keys]
    except RuntimeError as error:
        if "valid initial parameters" not in str(error):  # NumPyro's words
            raise
        got = "none where it starts"
        raise unusable("model", "a finite density of the outputs", got, "are kernel, heads and prior right?") from None


def _chunk(kernel: NUTS, kwargs: dict[str, Any], parameters: list[str], length: int) -> Callable:
    """From a state to that after a chunk and the chunk's draws, compiled."""

    def one(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
        state = kernel.sample(state, (), kwargs)
        values = kernel.postprocess_fn((), kwargs)(state.z)
        kept = {name: values[name] for name in parameters}
        return state, kept | {f"statistic_{name}": getattr(state, name) for name in STATISTICS}

    return jax.jit(lambda state: jax.lax.scan(one, state, length=length))


def _joined(parts: list[dict[str, np.ndarray]]) -> Sampled:
    """Draws and statistics of all chunks."""
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    statistics = {STATISTICS[name.removeprefix("statistic_")]: x for name, x in joined.items() if "statistic_" in name}
    statistics["lp"] = -statistics["lp"]
    return {name: x for name, x in joined.items() if "statistic_" not in name}, statistics
