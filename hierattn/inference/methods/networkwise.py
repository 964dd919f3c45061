"""Sampling of the limit law's posterior, network by network: chains of sweeps, in chunks, until they agree.

The moves of a sweep, and why they leave the posterior as it is, are in `sweeps.sweep`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.base.threads import in_threads
from hierattn.inference.checkpoints import in_chunks
from hierattn.inference.integration.integrated import Integrated, limit_law_likelihood
from hierattn.inference.integration.latents import integrated_likelihood
from hierattn.inference.latent.heads import Heads
from hierattn.inference.latent.latents import main, with_main
from hierattn.inference.latent.unknown import Unknown
from hierattn.inference.latent.waves import MOST_TOKENS
from hierattn.inference.likelihood import Data, covariance, deviances, terms
from hierattn.inference.methods.protocol import Method, Run, of_law
from hierattn.inference.methods.sweeps import joint
from hierattn.inference.methods.sweeps.directions import Lines, framed, lines_of, well_conditioned
from hierattn.inference.methods.sweeps.kernels import first
from hierattn.inference.methods.sweeps.orbits import POWERS
from hierattn.inference.methods.sweeps.state import Draws, Prior, State
from hierattn.inference.methods.sweeps.sweep import RECORDS, SIGMA_EVERY, chunk
from hierattn.inference.methods.sweeps.tempering import Tempering
from hierattn.inference.problem import KERNEL_UNKNOWN, SEPARATE, Posterior, Problem
from hierattn.inference.verdict import convergence
from hierattn.numerics.random_numbers import normals

TURN = 1.5  # angle of a trajectory of the typical network: a quarter turn forgets where it began
TURN_TOGETHER, TURN_UNKNOWN = 2.5, 20.0  # of everything together: what is known least takes longer, an unknown kernel most
SHORT_TURN = 0.6  # at finite head_dim, where networks move on their own: most latents are hardly seen, scales are slower
FEWEST, MOST, MOST_BESIDE_LINES, MOST_TOGETHER, MOST_UNKNOWN = 4, 32, 12, 64, 512  # steps of a trajectory
WARM_UP, WARM_UP_OF_HEADS = 8, 5  # chunks of adaptation; at finite head_dim, where steps are settled sooner
CHECK_EVERY = 2  # chunks between questions whether draws are enough, without such trajectories
MOST_DRAWS = 20_000  # sweeps of a chain at most
USUAL_DRAWS, USUAL_TOGETHER = 1_000, 300  # sweeps of a chain that usually suffice; with trajectories of everything
LIKELIHOODS = 2_000  # sweeps that cost as much as the likelihoods
SIGMA_ROOM = 2**16  # numbers of Sigma kept of a chunk, on average
ROOM_FOR_SIGMA = 2**24  # numbers of Sigma that a fit keeps
FIRST_LEAPS = 8
GROUP = 2  # chains that share their vector operations
FLATTER = 4  # times that scores are halved where chains start, at most
NEAR = 0.1  # of independence, where unknown kernels begin
SPREAD = 0.3  # of the chains' first log score_scale
LOOKED_AT = np.linspace(-2.0, 2.0, 9)  # where that may be: log sizes of scores
NEVER = 2**32 - 1  # a sweep that never comes: the key of a chain's start
MORE = "allow more sweeps (--most-draws)"
TO_DO = {
    "rhat": MORE,
    "ess": MORE,
    "divergences": "observe fewer tokens, or give narrower priors: covariances are too near to singular for the steps",
    "ebfmi": MORE,
    "stuck": "look at kernel, heads and prior: nothing moves where the chains are",
}


@dataclass(frozen=True)
class Networkwise(Method):
    """Sweeps over scores and scales. warm_up, check_every: in chunks of 50 sweeps; most_draws: sweeps of a chain at most."""

    name = "networkwise"
    sampled = True
    warm_up: int = WARM_UP
    check_every: int = CHECK_EVERY
    most_draws: int = MOST_DRAWS
    sigma_room: int = SIGMA_ROOM

    def refuses(self, problem: Problem) -> str | None:
        """All but the law, whatever its head_dim, and with its kernel unknown the law at infinite head_dim."""
        if problem.name in KERNEL_UNKNOWN:
            return _unknown(problem)
        why_not = of_law(problem, "limit_law", "finite_head_dim", rotary=True, linear=True, normed=True)
        layer = problem.layer
        if why_not is None and layer.rotary is not None and layer.head_dim is None and problem.K.shape[-1] > MOST_TOKENS:
            return f"knows rotary embeddings at infinite head_dim for {MOST_TOKENS} tokens at most"
        return why_not

    def prefers(self, problem: Problem) -> str | None:
        """The law with one kernel: of two unknown ones it has not been shown to need less time than NUTS."""
        return None if problem.name == SEPARATE else "the law: scores are sampled network by network"

    @property
    def most_steps(self) -> int:
        """Adaptation and draws."""
        return self.warm_up_steps + self.most_draws

    @property
    def warm_up_steps(self) -> int:
        """Adaptation."""
        return self.warm_up * RECORDS * SIGMA_EVERY

    @property
    def usual_steps(self) -> int:
        """Adaptation, and what usually suffices."""
        return self.warm_up_steps + min(USUAL_DRAWS, self.most_draws)

    def usual_for(self, problem: Problem) -> int:
        """Fewer where trajectories are of everything."""
        usual = USUAL_TOGETHER if problem.layer.head_dim is not None or problem.name in KERNEL_UNKNOWN else USUAL_DRAWS
        return self.warm_up_for(problem) + min(usual, self.most_draws)

    def warm_up_for(self, problem: Problem) -> int:
        """Fewer at finite head_dim."""
        return _warm_up(self.warm_up, problem.layer.head_dim is not None) * RECORDS * SIGMA_EVERY

    @property
    def likelihood_steps(self) -> int:
        """Particles move as often."""
        return LIKELIHOODS

    def sample(self, problem: Problem, run: Run) -> Posterior:
        """Chains until they agree, or until there are `most_draws` sweeps."""
        scale = problem.observations.scale
        prior = Prior(problem.prior["score_scale"], problem.prior["value_scale"], scale)
        data = problem.data()
        drawn = self.sample_until(data, prior, run, partial(self._enough, data, run))
        return Posterior(*named(drawn, scale, data.unknown), self.name, _conditional(problem, drawn))

    def _enough(self, data: Data, run: Run, draws: Draws) -> bool:
        parameters, statistics = named(draws, 1.0, data.unknown)
        return run.ends(draws.log_q.shape[1] >= self.most_draws, convergence(_each_once(parameters), statistics))

    def sample_until(self, data: Data, prior: Prior, run: Run, enough: Callable[[Draws], bool]) -> Draws:
        """Draws (chain, sweep) after warm-up, until they are `enough`."""
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(run.seed)))(jnp.arange(run.chains))
        data = replace(framed(data), rounded=well_conditioned(data))
        lines, states = lines_of(data), starts(data, prior, run.seed, keys)
        together = isinstance(data.made, Heads) or data.unknown is not None
        if together:
            states = joint.begun(data, states)
        warm_up = _warm_up(self.warm_up, isinstance(data.made, Heads))
        check_every = 1 if together else self.check_every
        turn, most = TURN if data.made is None else SHORT_TURN, MOST if lines is None else MOST_BESIDE_LINES
        tempering = Tempering(1 if lines is None else warm_up)  # where covariances are nearly singular
        sigma_chunks = -(-run.chains * RECORDS * data.S.size // self.sigma_room)  # one in so many keeps its records

        def step(carry: tuple[State, Any], k: int) -> tuple[tuple[State, Any], dict[str, np.ndarray]]:
            states, leaps = carry
            adapting = k < warm_up
            states, draws = run_chains(tempering.data(data, k), lines, prior, states, keys, leaps, adapting, compiled=k > 0)
            states = joint.pooled(states) if adapting and together else states
            leaps = np.asarray(leaps_for(states, turn, most)) if adapting else leaps
            run.advance(RECORDS * SIGMA_EVERY)
            if adapting:
                return (tempering.exchanged(data, states, draws.Sigma[:, -1], k, run.seed), leaps), {}
            if (k - warm_up) % sigma_chunks:
                draws = draws._replace(Sigma=draws.Sigma[:, :0])
            return (states, leaps), draws._asdict()

        for done in in_chunks(step, (states, np.asarray(FIRST_LEAPS)), run.checkpoint):
            sampled = done[warm_up:]
            if sampled and (len(sampled) % check_every == 0):
                draws = Draws._make(np.concatenate([part[name] for part in sampled], axis=1) for name in Draws._fields)
                if enough(draws):
                    return draws
        raise AssertionError("chunks never end by themselves")

    def log_likelihood(self, problem: Problem, found: Posterior, run: Run) -> Integrated | str:
        """By sequential Monte Carlo at a few places of the posterior, weighted anew for its draws."""
        if problem.name in KERNEL_UNKNOWN:
            result = integrated_likelihood(problem, found.draws, run.width, run.seed)
            return "its networks have too many scores to integrate out" if result is None else result
        return limit_law_likelihood(problem, found, run.seed)

    def advice(self, problem: Problem, code: str) -> str:
        """By the kind of trouble; one head is trouble by itself."""
        if problem.layer.heads == 1 and problem.observations.s > 1 and code != "stuck":
            return f"with one head chains are slow where two tokens look alike: observe fewer tokens, or {MORE}"
        return TO_DO[code]


def _warm_up(most: int, of_heads: bool) -> int:
    """Chunks of adaptation."""
    return min(most, WARM_UP_OF_HEADS) if of_heads else most


def _unknown(problem: Problem) -> str | None:
    """Why it cannot fit a law whose kernel is unknown."""
    if problem.observations.s < 2:
        return "needs two tokens for an unknown kernel"
    if problem.layer.rotary is not None:
        return "knows rotary embeddings with a known kernel only"
    return None if problem.layer.scaling == "sqrt" else f"knows no scaling {problem.layer.scaling!r}"


@jax.jit
def start(data: Data, rng_key: Array, log_q: Any) -> State:
    """Scores from their prior, value_scale where the data put it."""
    E = data.drawn(rng_key)
    t, _, networks = data.S.shape
    for _ in range(FLATTER):  # where Sigma is singular to rounding as drawn it need not be with smaller scores
        fine = jnp.isfinite(terms(data, E, jnp.exp(log_q)).trace)
        E = with_main(E, jnp.where(fine, main(E), main(E) / 2))
    trace = jnp.sum(terms(data, E, jnp.exp(log_q)).trace)
    log_o = jnp.log(trace / (networks * data.n * t)) / 2
    dtype, rows = trace.dtype, main(E).shape[1]
    steps, orbit_steps = jnp.full(networks, -2.0, dtype), jnp.full(len(POWERS), -3.0, dtype)
    square = jnp.ones((rows, 1, networks), dtype)
    kernel = None if data.unknown is None else first(NEAR * normals(jax.random.fold_in(rng_key, 1), (data.unknown.dim,)))
    return State(E, jnp.asarray(log_q, dtype), log_o, steps, orbit_steps, square, jnp.zeros((), int), kernel)


def starts(data: Data, prior: Prior, seed: int, rng_keys: Array) -> State:
    """A start for every chain, scores of about one, with parameters that the prior admits."""
    first = jax.vmap(lambda key: jax.random.fold_in(key, NEVER))(rng_keys)
    of_scores = float(np.mean(np.sum(np.asarray(data.L_q) ** 2, axis=1))) or 1.0
    centre = likeliest(data, first[0], LOOKED_AT - np.log(of_scores))
    places = centre + SPREAD * jnp.asarray(np.random.default_rng(seed).normal(size=len(rng_keys)))
    log_q = _admitted(prior.score_scale, places, 1.0, jax.random.fold_in(rng_keys[0], NEVER - 1))
    states = jax.vmap(lambda key, log_q: start(data, key, log_q))(first, log_q)
    if not np.all(np.isfinite(states.log_o)):
        got = "one whose conditional covariance is singular to rounding"
        remedy = "leave out tokens that others determine, or look at the prior of score_scale"
        raise unusable("kernel", "a kernel with which outputs have a density", got, remedy)
    log_o = _admitted(prior.value_scale, states.log_o, prior.unit, jax.random.fold_in(rng_keys[0], NEVER - 2))
    return states._replace(log_o=log_o)


def likeliest(data: Data, rng_key: Array, log_q: Float[np.ndarray, " place"]) -> float:
    """At which of some places the mean of S is explained best, as if outputs were Gaussian: only where chains begin."""
    Sigma = np.asarray(expected(data, rng_key, jnp.asarray(log_q)))
    return float(log_q[deviances(Sigma, np.asarray(data.S.mean(axis=-1))).argmin()])


@jax.jit
def expected(data: Data, rng_key: Array, log_q: Float[Array, " place"]) -> Float[Array, "place t t"]:
    """Mean Sigma over networks drawn from the prior."""
    E = data.drawn(rng_key)
    return jax.lax.map(lambda x: covariance(data, E, jnp.exp(x)).mean(axis=-1), log_q)


def _admitted(prior: Any, log_scale: Array, unit: Any, rng_key: Array) -> Array:
    """Logarithms of scales, drawn from the prior instead where that excludes them."""
    drawn = jnp.log(prior.sample(rng_key, log_scale.shape) / unit)
    return jnp.where(prior.support(jnp.exp(log_scale) * unit), log_scale, drawn)


def leaps_for(states: State, turn: float, most: int) -> int:
    """Steps of a trajectory that turn the typical network by so much, if that is not too many."""
    log_step = np.median(np.asarray(states.log_step))
    if states.joint is not None:
        log_step = log_step + np.median(np.asarray(states.joint.log_factor))
        turn, most = (TURN_TOGETHER, MOST_TOGETHER) if states.kernel is None else (TURN_UNKNOWN, MOST_UNKNOWN)
    return int(np.clip(2 * round(turn / float(np.exp(log_step)) / 2), FEWEST, most))


def run_chains(
    data: Data,
    lines: Lines | None,
    prior: Prior,
    states: State,
    rng_keys: Array,
    leaps: Any,
    adapting: bool,
    compiled: bool,
) -> tuple[State, Draws]:
    """A chunk of all chains, GROUP at a time, joined by NumPy, untraced. Draws do not depend on the number of threads."""
    groups = [slice(first, first + GROUP) for first in range(0, len(rng_keys), GROUP)]
    run_group = partial(chunk, data, lines, prior, leaps=leaps, adapting=jnp.asarray(adapting), records=RECORDS)

    def of(group: slice) -> tuple[State, Draws]:
        return jax.tree.map(np.asarray, run_group(jax.tree.map(lambda x: np.asarray(x)[group], states), rng_keys[group]))

    return jax.tree.map(lambda *x: np.concatenate(x), *in_threads(of, groups, compiled))


def named(draws: Draws, scale: float, unknown: Unknown | None = None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws and statistics under their usual names, value_scale in the data's units."""
    networks = draws.Sigma.shape[-1]
    lp, acceptance, diverged = (np.asarray(x) for x in (draws.log_density, draws.acceptance, draws.diverged))
    parameters = {"score_scale": np.exp(draws.log_q), "value_scale": np.exp(draws.log_o) * scale}
    if unknown is not None:
        L = jax.jit(jax.vmap(jax.vmap(unknown.cholesky)))(draws.theta)
        names = ("_scores", "_values") if unknown.separate else ("",)
        factors = {f"L{name}": np.asarray(x) for name, x in zip(names, L, strict=True)}
        parameters |= factors | {f"K{name[1:]}": x @ x.swapaxes(-1, -2) for name, x in factors.items()}
    return parameters, {"lp": lp, "acceptance_rate": acceptance, "diverging": diverged / networks}


def _each_once(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters without what is known of others: of kernels what is below the diagonal, and no factors."""
    below = {name: x[..., *np.tril_indices(x.shape[-1], -1)] if x.ndim == 4 else x for name, x in parameters.items()}
    return {name: x for name, x in below.items() if not name.startswith("L")}


def _conditional(problem: Problem, draws: Draws) -> np.ndarray:
    """Sigma of the observed networks, (chain, record, network, token, token), with as many records as there is room for."""
    thin = -(-draws.Sigma.size // ROOM_FOR_SIGMA)
    Sigma = np.moveaxis(draws.Sigma[:, ::thin], -1, 2) * problem.observations.scale**2
    return Sigma if problem.basis is None else problem.basis @ Sigma @ problem.basis.T
