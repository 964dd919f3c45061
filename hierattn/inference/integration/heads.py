"""How well other numbers of heads explain the same outputs: evidence per network, its scores integrated out.

For every number of heads H the two scales are put where the evidence of all networks is largest, by particles at the given
scales and then at the best ones near them: the mean of Sigma does not depend on H, so that they are never far. Numbers of
heads are compared network by network, by the differences of log evidences; networks are the independent units.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import check_counts, unusable
from hierattn.base.float64 import in_float64
from hierattn.base.reasons import reason
from hierattn.base.threads import in_threads
from hierattn.inference.integration.integrated import FEWEST, particles_at, particles_for, reweighted
from hierattn.inference.likelihood import Data
from hierattn.inference.problem import Problem

BATCHES, PARTICLES = 4, 32
NETWORKS = 64  # looked at, at most: a difference of .5 a network is seen with fewer
REACH, POINTS, FINER, TIMES = (
    2.0,
    9,
    3.0,
    5,
)  # of scales around those of the particles: on a grid, that is made finer some times
CLEARLY = 3.0  # standard errors by which another number of heads is better
UNASKED = 2**15  # latent numbers of the networks looked at, beyond which nobody is asked to wait for it
FEWEST_NETWORKS = 10  # that tell numbers of heads apart


class Tried(NamedTuple):
    """A number of heads, its best scales (in the outputs' units), and log evidence and integration error of every network."""

    heads: int
    score_scale: float
    value_scale: float
    log_evidence: Float[np.ndarray, " network"]
    error: Float[np.ndarray, " network"]


def why_not(problem: Problem) -> tuple[str, str] | None:
    """What other numbers of heads need, and what came instead; None if they can be tried."""
    if problem.name != "limit_law" or problem.observations.kernel is None:
        return "the limit law with a known kernel", f"the model {problem.name}"
    if problem.layer.bias is not None and np.ndim(problem.layer.bias) == 3:
        return "a layer whose heads are alike", "a bias for each of them"
    return None if problem.layer.rotary is None else ("a layer without rotary embeddings", "some")


def check(problem: Problem, numbers: tuple[int, ...]) -> None:
    """Refuse numbers of heads that are none, and problems that have no evidence for them."""
    for number in numbers:
        check_counts(try_heads=number)
    lacking = why_not(problem) if numbers else None
    if lacking is not None:
        raise unusable("try_heads", *lacking, "leave it out")


def unasked(problem: Problem) -> tuple[int, ...]:
    """Half as many heads and twice as many, or of one two and four: where only the user says how many, and it costs little."""
    obs, given = problem.observations, problem.layer.heads
    if obs.layer is not None or why_not(problem) is not None or obs.networks < FEWEST_NETWORKS or obs.s == 1:
        return ()
    numbers = (given // 2, 2 * given) if given > 1 else (2, 4)
    size = min(obs.networks, NETWORKS) * max(numbers) * obs.s * problem.K.shape[-1]
    return numbers if size <= UNASKED else ()


@in_float64
def try_heads(problem: Problem, numbers: tuple[int, ...], place: tuple[float, float], seed: int) -> list[Tried]:
    """The problem's own number of heads, and others, each at its best scales near a place (score_scale, value_scale)."""
    obs = problem.observations
    some = obs if obs.networks <= NETWORKS else obs.first(NETWORKS)
    every = sorted({problem.layer.heads, *numbers})
    return [tried(replace(problem, observations=some), number, place, seed, number != problem.layer.heads) for number in every]


def tried(problem: Problem, heads: int, place: tuple[float, float], seed: int, look: bool = True) -> Tried:
    """One number of heads; its scales are looked for with one batch of particles before, or the place is near enough."""
    data = replace(problem, layer=problem.layer.replace(heads=heads, key_value_heads=None)).data()
    scale, particles = problem.observations.scale, min(PARTICLES, particles_for(data))
    if particles < FEWEST:
        raise unusable("try_heads", "networks whose scores can be integrated out", f"{heads} heads", "try fewer")
    at = np.log([place[0], place[1] / scale])
    first, *keys = jax.random.split(jax.random.key(seed), 1 + BATCHES)
    if look:
        at, _ = _best_near(data, at, [first], particles)
    at, values = _best_near(data, at, keys, particles, compiled=look)
    shares = np.exp(values - values.max(axis=0))
    found = values.max(axis=0) + np.log(shares.mean(axis=0)) - data.n * data.S.shape[0] * np.log(scale)
    error = shares.std(axis=0, ddof=1) / shares.mean(axis=0) / np.sqrt(BATCHES)
    return Tried(heads, float(np.exp(at[0])), float(np.exp(at[1]) * scale), np.asarray(found), error)


def _best_near(
    data: Data, at: np.ndarray, keys: list[Array], particles: int, compiled: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Log scales near `at` of the largest evidence, by particles made there, and log evidences (batch, network)."""
    q, o = np.exp(at)

    def batch(key: Any) -> Any:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], particles_at(data, q, o, key, particles))

    clouds = in_threads(batch, keys, compiled)

    def surface(places: np.ndarray) -> np.ndarray:
        scales = jnp.exp(jnp.asarray(places)).T
        return np.stack(in_threads(lambda cloud: np.asarray(reweighted(data, cloud, *scales)), clouds, compiled))

    reach, steps = REACH / np.sqrt(2 * np.prod(data.latent_shape[:-1])), np.linspace(-1, 1, POINTS)
    offsets = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    best, values = at, np.zeros(0)
    for k in range(TIMES):
        places = np.clip(best + offsets * reach / FINER**k, at - reach, at + reach)
        values = surface(places)
        i = (np.logaddexp.reduce(values, axis=0)).sum(axis=-1).argmax()
        best, values = places[i], values[:, i]
    return best, values


def compared(found: list[Tried]) -> list[dict[str, Any]]:
    """A row for each number of heads, the best first: log evidence per network, and how far it is behind the best, with errors.

    difference: sum over networks of the best one's log evidence minus this one's; its error is that of a sum of so many
    independent differences, integration included.
    """
    best = max(found, key=lambda each: each.log_evidence.sum())
    rows = []
    for each in sorted(found, key=lambda each: -each.log_evidence.sum()):
        gap, number = best.log_evidence - each.log_evidence, len(each.log_evidence)
        row: dict[str, Any] = {"heads": each.heads, "networks": number}
        row |= {"log_evidence": float(each.log_evidence.mean()), "log_evidence_error": _error(each.log_evidence)}
        row |= {"difference": float(gap.sum()), "difference_error": number * _error(gap)}
        row |= {"integration_error": float(np.sqrt(np.sum(each.error**2)))}
        rows.append(row | {"score_scale": each.score_scale, "value_scale": each.value_scale})
    return rows


def _error(x: np.ndarray) -> float:
    """Of a mean over networks."""
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else 0.0


def named(rows: list[dict[str, Any]], heads: int) -> list[dict[str, Any]]:
    """The reason that names a number of heads that is clearly better; none if the given one is the best, or nearly."""
    (own,) = [row for row in rows if row["heads"] == heads]
    best = rows[0]
    if best["heads"] == heads or own["networks"] < FEWEST_NETWORKS or own["difference"] < CLEARLY * own["difference_error"]:
        return []
    gap = f"{own['difference']:.1f} +- {own['difference_error']:.1f} over {own['networks']} networks"
    message = f"the outputs look like those of {best['heads']}, not {heads}, heads: log evidences differ by {gap}; "
    message += f"if nothing else tells the number, fit with --heads {best['heads']}"
    numbers = {"heads": heads, "better": best["heads"], "difference": own["difference"]}
    return [reason("heads", message, **numbers, difference_error=own["difference_error"])]
