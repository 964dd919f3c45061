"""Several tokens, few coordinates: scores integrated out by importance sampling."""

import arviz
import numpy as np
import pytest

from hierattn import Architecture, InputError, Observations
from hierattn.base.float64 import in_float64
from hierattn.inference.fitting import lookup, route
from hierattn.inference.methods import importance
from hierattn.inference.methods.marginal import Marginal
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.problem import pose
from tests.inference import tiny
from tests.inference.drawn import observe
from tests.statistics import SIGMAS


def posed(networks, coordinates, heads, seed=0):
    layer = Architecture(heads=heads)
    return pose(observe(layer, np.eye(2), networks, coordinates, seed=seed), layer, lookup("limit_law"), None)


def quadrature(S, n, q, o, points=600):
    """Log likelihoods of networks with two tokens, one head, K = I: rows (a, 1 - a), a = sigmoid(sqrt(2) q z), z Gaussian."""
    z = np.linspace(-7, 7, points)
    a = 1 / (1 + np.exp(-np.sqrt(2) * q * z))
    log_weight = np.log(z[1] - z[0]) - z**2 / 2 - np.log(2 * np.pi) / 2
    first, second = np.tril_indices(points, -1)  # where both are equal the density is zero; the other half is the same
    a, b = a[first], a[second]
    aa, bb, ab = (o**2 * (x * y + (1 - x) * (1 - y)) for x, y in ((a, a), (b, b), (a, b)))
    det = o**4 * (a - b) ** 2
    log_weight = log_weight[first] + log_weight[second] - n / 2 * (np.log(det) + 2 * np.log(2 * np.pi))
    both = [np.stack([bb, aa, -2 * ab]) / det, np.stack([aa, bb, -2 * ab]) / det]
    squares = np.stack([S[:, 0, 0], S[:, 1, 1], S[:, 0, 1]], axis=1)
    return np.logaddexp.reduce([np.logaddexp.reduce(log_weight - squares @ x / 2, axis=1) for x in both])


def test_surface_is_the_integral_over_scores():
    """Against quadrature over both rows' scores, by the batches' error; a score_scale off by 10 % is seen."""
    problem = posed(10, 2, heads=1)
    box = np.array([[-0.5, 0.7], [-0.2, 0.3]])

    @in_float64
    def surface():
        data = problem.data()
        E = np.random.default_rng(1).normal(size=(*data.latent_shape[:-1], 2**15))
        return importance._surface(problem, data, E, box, 3)

    x, y, likelihood, _ = surface()
    S = problem.observations.S / problem.observations.scale**2
    exact, off = (np.array([[quadrature(S, 2, f * np.exp(a), np.exp(b)).sum() for b in y] for a in x]) for f in (1.0, 1.1))
    apart = likelihood[1:] - likelihood[1:].mean(axis=0)
    error = np.sqrt((importance.BATCHES - 1) / importance.BATCHES * (apart**2).sum(axis=0))
    print(np.abs(likelihood[0] - exact) / error, error.max())
    assert np.all(np.abs(likelihood[0] - exact) < SIGMAS * error)
    assert np.any(np.abs(likelihood[0] - off) > 2 * SIGMAS * error)


@pytest.mark.slow
def test_same_posterior_as_with_scores_sampled():
    """By the effective number of draws and the error that importance sampling states; half a standard deviation is seen.

    Of networks whose shapes others have compiled for.
    """
    problem = pose(Observations(tiny.outputs()[..., :2], tiny.K, heads=2), tiny.LAYER, lookup("limit_law"), None)
    ours, theirs = (route(problem, method, seed=0, chains=2) for method in ("marginal", Networkwise(most_draws=1500)))
    stated = ours.reasons[0]["numbers"]
    for name in ("score_scale", "value_scale"):
        x, y = np.log(ours.draws[name]), np.log(theirs.draws[name])
        errors = [x.std() / np.sqrt(x.size), y.std() / np.sqrt(float(arviz.ess(y))), stated[f"{name}_error_sd"] * x.std()]
        error = np.sqrt(np.sum(np.square(errors)))
        print(name, x.mean(), y.mean(), error, x.std(), y.std(), stated)
        assert abs(x.mean() - y.mean()) < 3 * error
        assert abs(x.mean() + x.std() / 2 - y.mean()) > 3 * error
        assert abs(np.log(x.std() / y.std())) < 0.2


def test_outputs_that_determine_their_scores_are_refused():
    with pytest.raises(InputError, match=r"method: expected networks that say little .* got a Pareto k of .* use networkwise"):
        route(posed(30, 256, heads=1), Marginal(room=30 * 2**12), seed=0, chains=2)


def test_too_many_networks_are_refused():
    with pytest.raises(InputError, match="got 30 networks; use networkwise"):
        route(posed(30, 2, heads=1), Marginal(room=2**10), seed=0, chains=2)
