"""The posterior of both scales from one observed token, integrated on a grid.

With the scores integrated out two parameters are left, log score_scale and s = 2 log omega, omega^2 the total variance, over
which the log likelihood is known (`surface`). The grid is made fine enough for the narrowest mode; draws are independent.

One token alone is ambiguous (THEORY section 9): kurtosis is not monotone in score_scale, so that a small and a large one may
explain the same outputs. Every mode that carries mass is reported.
"""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import unusable
from hierattn.inference.methods import priors
from hierattn.inference.methods.one_token import ambiguity
from hierattn.inference.methods.one_token.surface import Squares, Surface, log_likelihoods, squares, surface
from hierattn.inference.methods.one_token.variances import Table, table
from hierattn.inference.problem import Posterior, Problem

MODELS = ("limit_law", "finite_head_dim")
NEGLIGIBLE = 15.0  # nats below the maximum
COARSE = (129, 65)  # points while the posterior is being located
PER_SD, FEWEST, MOST = 8, 64, 2**22  # points in a standard deviation of the narrowest mode; on an axis; of a grid
WIDEST = 60.0  # of a range of s


def one_token(problem: Problem, seed: int, chains: int = 4, draws: int = 1000) -> Posterior:
    """Independent draws of score_scale and value_scale given the outputs of one token.

    statistics: `lp`, the log density of (log score_scale, log value_scale) given the outputs, up to a constant.
    """
    t, n = _checked(problem)
    range_q = priors.span(problem.prior["score_scale"], "score_scale")
    data = squares(t, n)
    laws, likelihood, box = _located(problem, data, range_q)
    x, s = _fine(partial(_log_posterior, problem, likelihood, grid=True), box)
    log_prior = _log_prior(problem, likelihood, x[:, None], s)
    log_density = [likelihood.log_likelihood(x, s, which, grid=True) + log_prior for which in range(4)]
    density = [np.exp(values - values.max()) for values in log_density]
    rng, number = np.random.default_rng(seed), chains * draws
    log_q = np.sort(draw_from(x, density[0].sum(axis=1)[None], rng.random(number)))
    rows = _log_posterior(problem, likelihood, log_q, s, grid=True)
    s_drawn = draw_from(s, np.exp(rows - rows.max(axis=1, keepdims=True)), rng.random(number))
    order = rng.permutation(number).reshape(chains, draws)
    drawn = {"score_scale": np.exp(log_q), "value_scale": np.exp(likelihood.log_o(log_q, s_drawn))}
    statistics = {"lp": _log_posterior(problem, likelihood, log_q, s_drawn)}
    return Posterior(
        {name: values[order] for name, values in drawn.items()},
        {name: values[order] for name, values in statistics.items()},
        "marginal",
        reasons=(*ambiguity.reasons(likelihood, laws, data, x, s, density[0]), _accuracy(likelihood, x, s, density)),
    )


def log_likelihood(problem: Problem, score_scale: Any, value_scale: Any) -> Float[np.ndarray, "draw network"]:
    """Of every network, its scores integrated out, at draws of both scales; computed a draw at a time."""
    t, n = _checked(problem)
    q, o = np.ravel(score_scale), np.ravel(value_scale)
    return log_likelihoods(table(problem.law, n, np.log(q.min()), np.log(q.max())), t, q, o)


def _checked(problem: Problem) -> tuple[np.ndarray, int]:
    """Sums of squares and how many coordinates they have."""
    observations = problem.observations
    if observations.s != 1:
        raise unusable("outputs", "one token", f"{observations.s} tokens", "use another method")
    if problem.K.ndim != 2:
        raise unusable("kernel", "one for all networks", f"shape {problem.K.shape}", "use another method")
    if problem.name not in MODELS:
        raise unusable("model", "one of " + ", ".join(MODELS), problem.name, "use another method")
    return observations.S[:, 0, 0], observations.coordinates


def _log_prior(problem: Problem, likelihood: Surface, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Log density of (log q, log o)."""
    prior = problem.prior
    return priors.log_density(prior["value_scale"], likelihood.log_o(x, s)) + priors.log_density(prior["score_scale"], x)


def _log_posterior(problem: Problem, likelihood: Surface, x: np.ndarray, s: np.ndarray, grid: bool = False) -> np.ndarray:
    """The same given the outputs, up to a constant; on the grid of x and s, or at pairs of them."""
    log_prior = _log_prior(problem, likelihood, x[:, None] if grid else x, s)
    return likelihood.log_likelihood(x, s, grid=grid) + log_prior


def _located(problem: Problem, data: Squares, range_q: tuple[float, float]) -> tuple[Table, Surface, np.ndarray]:
    """The likelihood over a range that holds the posterior, and a box, ends of x and of s, around all its mass."""
    box = np.array([range_q, data.range_s(NEGLIGIBLE)])
    laws = table(problem.law, data.n, *box[0])
    likelihood = surface(laws, data, *box[1])
    while np.ptp(box[1]) < WIDEST:
        x, s = _axes(box, COARSE)
        value = _log_posterior(problem, likelihood, x, s, grid=True)
        near = np.argwhere(value + _largest_step(value) > value.max() - NEGLIGIBLE)
        if not len(near):  # the prior excludes all of it
            near = np.array([[1, 0], np.array(COARSE) - [2, 1]])
        first, last = near.min(axis=0), near.max(axis=0)
        outwards = np.stack([first == 0, last == np.array(COARSE) - 1], axis=1)
        outwards[0] &= priors.log_density(problem.prior["score_scale"], box[0] + [-1e-6, 1e-6]) > -np.inf
        if outwards.any():
            box += outwards * np.outer(np.ptp(box, axis=1), [-1, 1])
            laws = table(problem.law, data.n, *box[0])
            likelihood = surface(laws, data, *box[1])
            continue
        low, high = np.maximum(first - 1, 0), np.minimum(last + 1, np.array(COARSE) - 1)
        smaller = np.array([[x[low[0]], x[high[0]]], [s[low[1]], s[high[1]]]])
        if np.all(np.ptp(smaller, axis=1) > 0.7 * np.ptp(box, axis=1)):
            return laws, likelihood, smaller
        box = smaller
    raise unusable("prior", "one under which the outputs are possible", "one that excludes them", "look at value_scale's")


def _largest_step(value: np.ndarray) -> np.ndarray:
    """To the neighbours on a grid: a narrow peak between points cannot be higher than that above them."""
    result = np.zeros(value.shape)
    for axis in range(2):
        with np.errstate(invalid="ignore"):
            step = np.nan_to_num(np.abs(np.diff(value, axis=axis)), posinf=0.0)
        before, after = (np.insert(step, where, 0, axis=axis) for where in (0, step.shape[axis]))
        result = np.maximum(result, np.maximum(before, after))
    return result


def _fine(log_posterior: Any, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Axes of a grid over the box with PER_SD points in the narrowest mode's standard deviation, from its curvature."""
    axes = _axes(box, COARSE)
    value = log_posterior(*axes)
    high = value + _largest_step(value) > value.max() - 2
    points = np.empty(2)
    for axis, grid in enumerate(axes):
        with np.errstate(invalid="ignore"):
            curvature = -np.diff(value, 2, axis=axis)[np.moveaxis(np.moveaxis(high, axis, 0)[1:-1], 0, axis)]
        sharpest = np.sqrt(np.nanmax(curvature, initial=0, where=np.isfinite(curvature)))
        points[axis] = max(PER_SD * sharpest * (len(grid) - 1), FEWEST)
    points *= min(1, np.sqrt(MOST / points.prod()))
    return _axes(box, 2 * (points / 2).astype(int) + 1)


def _axes(box: np.ndarray, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of a grid with so many points either way."""
    return np.linspace(box[0, 0], box[0, 1], int(points[0])), np.linspace(box[1, 0], box[1, 1], int(points[1]))


def draw_from(grid: np.ndarray, density: Float[np.ndarray, "_ G"], u: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """Quantiles u of densities on a grid, linear between its points: one for all, or one each."""
    cumulative = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    target = u * cumulative[:, -1]
    cell = np.minimum((cumulative < target[:, None]).sum(axis=1), len(grid) - 2)
    row = np.arange(len(u)) if len(density) > 1 else np.zeros(len(u), int)
    rest = target - np.where(cell > 0, cumulative[row, cell - 1], 0)
    a, b = density[row, cell], density[row, cell + 1]
    root = np.sqrt(np.maximum(a**2 + 2 * (b - a) * rest, 0))
    return grid[cell] + (grid[1] - grid[0]) * np.clip(2 * rest / np.maximum(a + root, 1e-300), 0, 1)


def _accuracy(likelihood: Surface, x: np.ndarray, s: np.ndarray, density: list[np.ndarray]) -> dict[str, Any]:
    """How far half of the scores, every second score_scale of the lattice or half of the grid move the posterior means."""
    values = np.stack([np.broadcast_to(x[:, None], density[0].shape), likelihood.log_o(x[:, None], s)])

    def mean(weights: np.ndarray, powers: np.ndarray = values) -> np.ndarray:
        return np.sum(powers * weights, axis=(1, 2)) / weights.sum()

    means = [mean(weights) for weights in density]
    sd = np.sqrt(mean(density[0], (values - means[0][:, None, None]) ** 2))
    thinned = mean(density[0][::2, ::2], values[:, ::2, ::2])
    error = abs(means[1] - means[2]) / 2 + abs(means[3] - means[0]) / 16 + abs(thinned - means[0])
    error = np.divide(error, sd, out=np.zeros(2), where=sd > 0)
    message = f"integrated on {len(x)} x {len(s)} points; posterior means are within {error.max():.1g} standard deviations"
    numbers = {"points": x.size * s.size, "score_scale_error_sd": float(error[0]), "value_scale_error_sd": float(error[1])}
    return {"code": "integrated", "message": message, "numbers": numbers}
