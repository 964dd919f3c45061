"""The posterior of both scales from several tokens and few coordinates: scores integrated out by importance sampling.

Few coordinates say little about a network's scores, so that scores drawn from their prior are good proposals for the posterior:

    p(Y_m | q, o) = mean over r of N(Y_m; 0, o^2 Sigma(q E_r)),

the same E_r for all networks and parameters, which makes the surface over (log q, log o) smooth. Pareto k of every network's
weights and batches of E_r tell what that is worth; scores are added until both are good, or the outputs are refused.
"""

from functools import partial
from typing import Any

import arviz_stats.base
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.interpolate import RectBivariateSpline

from hierattn.base.errors import unusable
from hierattn.base.float64 import in_float64
from hierattn.base.reasons import reason
from hierattn.inference.integration.evidence import NOTHING
from hierattn.inference.integration.integrated import Integrated, of_limit_law
from hierattn.inference.likelihood import Data, Terms, covariance, inverse, log_likelihood
from hierattn.inference.methods import priors
from hierattn.inference.methods.one_token.grid import draw_from
from hierattn.inference.methods.protocol import Run
from hierattn.inference.problem import Posterior, Problem

FIRST, MORE, ROOM = 2**12, 4, 2**23  # scores to begin with; times as many in every round; of networks x scores at most
BATCHES = 8
KHAT, TOLERANCE = 0.7, 0.2  # largest Pareto k; error of posterior means, in standard deviations
NEGLIGIBLE = 15.0  # nats below the maximum
COARSE, POINTS, FINE = 13, 17, 257  # points on an axis: while locating, of the surface, of the posterior
START_O = (-2.0, 4.0)  # log value_scale in units of the outputs' scale, for a kernel of size 1
MOST_STEPS = 30


@in_float64
def several_tokens(problem: Problem, seed: int, chains: int = 4, draws: int = 1000, room: int = ROOM) -> Posterior:
    """Independent draws of score_scale and value_scale; refused where importance sampling cannot be trusted."""
    data, rng, number, why = problem.data(), np.random.default_rng(seed), FIRST, ""
    networks, range_o = data.S.shape[-1], np.array(START_O) - np.log(problem.kernel_size) / 2
    box = np.array([priors.span(problem.prior["score_scale"], "score_scale"), range_o])
    while networks * number <= room:
        E = jnp.asarray(rng.normal(size=(*data.latent_shape[:-1], number)))
        evaluate = partial(_surface, problem, data, E)
        box = _located(evaluate, box)
        x, y, likelihood, prior = evaluate(box, POINTS)
        khat = _khat(data, E, *_mode(x, y, likelihood[0] + prior))
        fine, densities = _posteriors(x, y, likelihood, prior)
        error = _error(fine, densities)
        if khat.max() <= KHAT and error.max() <= TOLERANCE:
            said = {"scores": number, "khat": float(khat.max())}
            said |= {"score_scale_error_sd": float(error[0]), "value_scale_error_sd": float(error[1])}
            message = (
                f"scores integrated out by {number} draws: Pareto k at most {khat.max():.2f}, means to {error.max():.1g} sd"
            )
            log_q, log_o, lp = (x.reshape(chains, draws) for x in _drawn(fine, densities[0], rng, chains * draws))
            found = {"score_scale": np.exp(log_q), "value_scale": np.exp(log_o) * problem.observations.scale}
            return Posterior(found, {"lp": lp}, "marginal", reasons=(reason("integrated", message, **said),))
        why = f"a Pareto k of {khat.max():.2f} and means known to {error.max():.1g} standard deviations with {number} scores"
        number *= MORE
    why = why or f"{networks} networks"
    raise unusable("method", "networks that say little about their scores for marginal", why, "use networkwise")


@jax.jit
def _of_scores(data: Data, E: Array, q: Any) -> tuple[Float[Array, "network R"], Float[Array, " R"]]:
    """Traces tr(Sigma_r^{-1} S_m), and log determinants of Sigma_r."""
    P, logdet = inverse(covariance(data, E, q))
    return jnp.einsum("ijr,ijm->mr", P, data.S), logdet


def _log_density(data: Data, trace: Array, logdet: Array, o: Any) -> Float[Array, "network R"]:
    """Of every network given each of the scores: nothing where they make Sigma singular."""
    value = log_likelihood(data, Terms(logdet, trace), o)
    return jnp.where(jnp.isnan(value), NOTHING, value)


@jax.jit
def _row(data: Data, trace: Array, logdet: Array, o: Float[Array, " o"]) -> Float[Array, "o batch network"]:
    """Log mean density of every network over every batch of scores, for values of o."""

    def at(o: Any) -> Array:
        density = _log_density(data, trace, logdet, o).reshape(len(trace), BATCHES, -1)
        return (logsumexp(density, axis=-1) - jnp.log(density.shape[-1])).T

    return jax.lax.map(at, o)


def _surface(problem: Problem, data: Data, E: Array, box: np.ndarray, points: int) -> tuple:
    """Axes (log q, log o), log likelihood by all scores and without each batch (which, q, o), and log prior."""
    x, y = (np.linspace(low, high, points) for low, high in box)
    o = jnp.exp(jnp.asarray(y))
    parts = np.stack([np.asarray(_row(data, *_of_scores(data, E, q), o)) for q in np.exp(x)])  # q, o, batch, network
    top = parts.max(axis=2, keepdims=True)
    shares = np.exp(parts - top)
    whole = shares.sum(axis=2, keepdims=True)
    leaving_out = np.log(np.maximum(whole - shares, 1e-300) / (BATCHES - 1))
    values = np.concatenate([np.log(whole / BATCHES), leaving_out], axis=2) + top
    log_o = y + np.log(problem.observations.scale)
    prior = priors.log_density(problem.prior["score_scale"], x)[:, None] + priors.log_density(
        problem.prior["value_scale"], log_o
    )
    return x, y, np.moveaxis(values.sum(axis=-1), 2, 0), prior


def _located(evaluate: Any, box: np.ndarray) -> np.ndarray:
    """A box around all of the posterior's mass: grown where the mass reaches its edge, else shrunk until it fits."""
    for _ in range(MOST_STEPS):
        x, y, likelihood, prior = evaluate(box, COARSE)
        value = likelihood[0] + prior
        near = np.argwhere(value > value.max() - NEGLIGIBLE)
        low, high = near.min(axis=0), near.max(axis=0)
        outwards = np.stack([low == 0, high == COARSE - 1], axis=1)
        outwards[0] = False  # the prior of score_scale ends there
        if outwards.any():
            box = box + outwards * np.outer(np.ptp(box, axis=1), [-0.5, 0.5])
            continue
        low, high = np.maximum(low - 1, 0), np.minimum(high + 1, COARSE - 1)
        smaller = np.array([[x[low[0]], x[high[0]]], [y[low[1]], y[high[1]]]])
        if np.all(np.ptp(smaller, axis=1) > 0.7 * np.ptp(box, axis=1)):
            return smaller
        box = smaller
    raise unusable("prior", "one under which the outputs are possible", "one that excludes them", "look at value_scale's")


def _mode(x: np.ndarray, y: np.ndarray, value: np.ndarray) -> tuple[float, float]:
    """Parameters q, o at the maximum of a surface."""
    i, j = np.unravel_index(value.argmax(), value.shape)
    return float(np.exp(x[i])), float(np.exp(y[j]))


def _khat(data: Data, E: Array, q: float, o: float) -> np.ndarray:
    """Pareto k of every network's weights."""
    trace, logdet = _of_scores(data, E, q)
    weights = np.asarray(_log_density(data, trace, logdet, o))
    return np.atleast_1d(arviz_stats.base.array_stats.psislw(-weights, axis=-1)[1])


def _posteriors(x: np.ndarray, y: np.ndarray, likelihood: np.ndarray, prior: np.ndarray) -> tuple:
    """Fine axes, and densities on them: by all scores, then without each batch."""
    fine = np.linspace(x[0], x[-1], FINE), np.linspace(y[0], y[-1], FINE)
    floor = np.maximum(likelihood + prior - (likelihood + prior).max(axis=(1, 2), keepdims=True), -50 * NEGLIGIBLE)
    smooth = np.stack([RectBivariateSpline(x, y, value)(*fine) for value in floor])
    return fine, np.exp(smooth - smooth.max(axis=(1, 2), keepdims=True))


def _error(axes: tuple, densities: np.ndarray) -> Float[np.ndarray, "2"]:
    """Of the means of log q and log o, in posterior standard deviations: the jackknife's standard error and bias."""
    values = np.stack(np.meshgrid(*axes, indexing="ij"))
    weights = densities / densities.sum(axis=(1, 2), keepdims=True)
    means = np.einsum("pij,bij->bp", values, weights)
    sd = np.sqrt(np.einsum("pij,ij->p", (values - means[0][:, None, None]) ** 2, weights[0]))
    apart = means[1:] - means[1:].mean(axis=0)
    scatter = np.sqrt((BATCHES - 1) / BATCHES * (apart**2).sum(axis=0))
    return (scatter + (BATCHES - 1) * np.abs(means[1:].mean(axis=0) - means[0])) / sd


def _drawn(axes: tuple, density: np.ndarray, rng: np.random.Generator, number: int) -> tuple:
    """Draws of log q and log o from a density on a grid, and its logarithm there."""
    x, y = axes
    log_q = draw_from(x, density.sum(axis=1)[None], rng.random(number))
    at = RectBivariateSpline(x, y, np.log(np.maximum(density, 1e-300)))
    log_o = draw_from(y, np.exp(at(np.sort(log_q), y))[np.argsort(np.argsort(log_q))], rng.random(number))
    return log_q, log_o, at.ev(log_q, log_o)


def limit_law_likelihood(problem: Problem, found: Posterior, run: Run) -> Integrated | str:
    """Log likelihoods of networks of the limit law with a known kernel, in the outputs' own units."""
    data, scale = problem.data(), problem.observations.scale
    result = of_limit_law(data, found.draws["score_scale"].ravel(), found.draws["value_scale"].ravel() / scale, run.seed)
    if result is None:
        return f"{problem.observations.networks} networks have too many scores to integrate out"
    return result._replace(value=result.value - problem.observations.coordinates * data.S.shape[0] * np.log(scale))
