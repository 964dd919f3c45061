"""Estimates from moments: expectations against drawn networks and reference values, the estimates against the truth."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from hierattn import Architecture, InputError, Law, Observations, kernels
from hierattn.inference.fitting import route
from hierattn.inference.methods.moment_table import Directions, averages, directions, expected_features, features
from hierattn.inference.methods.moments import Moments, by_moments, closest, ratios, resampled
from hierattn.inference.problem import pose
from hierattn.models import finite_head_dim, limit_law, student_t
from tests.inference.drawn import observe
from tests.statistics import SIGMAS, mean_agrees, within

RNG, FEWER, FEWEST = np.random.default_rng(0), 2**12, 2**10  # sets of scores: of expectations, and of estimates
GENERAL = kernels.from_inputs(RNG.normal(size=(4, 6)))
LAYERS = {
    "plain": Architecture(heads=2),
    "causal": Architecture(heads=2, mask="causal"),
    "bias per head": Architecture(heads=3, bias=RNG.normal(size=(3, 4, 4))),
    "narrow heads": Architecture(heads=2, head_dim=6),
}


def posed(observations, layer, prior=None):
    return pose(observations, layer, limit_law if layer.head_dim is None else finite_head_dim, prior)


# expectations


@pytest.mark.parametrize("name", LAYERS)
def test_expectations_are_those_of_drawn_networks(name):
    """20,000 networks see means wrong by some 4 %: the pairs of one coordinate forgotten, or heads that do not average."""
    layer, n, q = LAYERS[name], 3, np.array([0.8, 1.3])
    law = Law(layer, GENERAL)
    at = Directions(RNG.normal(size=(4, 3)), np.array([-1.0, 0.2, 1.0]))
    found = averages(law, q, at, FEWER)
    expected = expected_features(found, n)[1]
    S = observe(layer.with_scales(q[1], 1.0), GENERAL, 20_000, n).S
    observed = features(S, at)
    assert mean_agrees(observed, expected)
    forgotten = n**2 * found.gg[1, 0, 0]
    assert not mean_agrees(observed[:, 2], forgotten)
    one_head = averages(Law(layer.replace(heads=1, bias=None), GENERAL), q, at, FEWER)
    assert not mean_agrees(observed[:, 2:], expected_features(one_head, n)[1, 2:])


def test_reference_values():
    """THEORY section 11: E[v] and E[v^2] of one head, clip inputs."""
    law = Law(Architecture(), np.eye(4), [[1.0]])
    found = averages(law, np.ones(1), Directions(np.eye(1), np.zeros(1)), FEWER)
    assert found.Sigma[0, 0, 0] == pytest.approx(0.3919714436, rel=1e-4)
    assert found.gg[0, 0, 0] == pytest.approx(0.1661028910, rel=3e-4)
    assert found.T[0, 0, 0] == pytest.approx(found.gg[0, 0, 0], rel=1e-12)
    two = averages(Law(Architecture(heads=2), np.eye(4), [[1.0]]), np.ones(1), Directions(np.eye(1), np.zeros(1)), FEWER)
    variance, half = (x.gg[0, 0, 0] - x.g[0, 0] ** 2 for x in (found, two))
    assert half == pytest.approx(variance / 2, rel=1e-9)


def test_directions_are_a_gaussians():
    log_q = np.linspace(-1, 1, 21)
    Sigma = averages(Law(Architecture(), GENERAL), np.exp(log_q), Directions(np.eye(4), np.zeros(4)), FEWER).Sigma
    at = directions(Sigma, log_q, 10)
    slope = at.U.T @ np.gradient(Sigma, log_q, axis=0)[10] @ at.U
    np.testing.assert_allclose(at.U.T @ Sigma[10] @ at.U, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(slope, np.diag(np.diag(slope)), atol=1e-9)
    assert np.corrcoef(np.diag(slope), at.lam)[0, 1] == pytest.approx(1)
    assert directions(np.ones((3, 2, 2)), np.arange(3.0), 1).U.shape == (2, 1)  # equal tokens: one direction


# solving


def test_closest_point_of_a_curve():
    x = np.linspace(-2, 2, 401)
    curve = 100 * np.column_stack([np.sin(x), x**2])  # so that other minima are far away
    truth = np.array([-1.234567, 0.1, 1.98])
    found, distance = closest(
        x, curve, 100 * np.column_stack([np.sin(truth), truth**2]), np.zeros(401), np.random.default_rng(0)
    )
    np.testing.assert_allclose(found, truth, atol=1e-4)
    np.testing.assert_allclose(distance, 0, atol=0.05)
    beyond = closest(x, x[:, None], np.array([[5.0]]), np.zeros(401), np.random.default_rng(0))
    assert beyond[0] == 2
    assert beyond[1] == pytest.approx(9)


def test_equal_minima_are_chosen_with_the_priors_odds():
    x = np.linspace(-2, 2, 400)
    log_prior = np.where(x > 0, np.log(3.0), 0.0)
    found, _ = closest(x, x[:, None] ** 2, np.full((4001, 1), 0.5), log_prior, np.random.default_rng(0))
    assert found[0] == pytest.approx(np.sqrt(0.5), abs=1e-3)
    assert stats.binomtest(int(np.sum(found > 0)), 4001, 0.75).pvalue > 1e-6
    np.testing.assert_allclose(np.abs(found), np.sqrt(0.5), atol=1e-3)


@pytest.mark.parametrize("networks", [60, 2503])
def test_means_over_networks_drawn_with_replacement(networks):
    values = RNG.gamma(1.0, size=(networks, 6))
    found = resampled(values, 4000, np.random.default_rng(1))
    error = values.std(axis=0) / np.sqrt(networks)
    assert within(found.mean(axis=0), values.mean(axis=0), error / np.sqrt(4000))
    np.testing.assert_allclose(found.std(axis=0), error, rtol=0.12)  # blocks of networks: 1,000 numbers tell their spread


def test_ratios_are_free_of_value_scale():
    S = observe(Architecture(heads=2), GENERAL, 50, 3).S
    at = Directions(np.eye(4), np.linspace(-1, 1, 4))
    first, second = (ratios(features(c * S, at).mean(axis=0)) for c in (1.0, 7.0))
    np.testing.assert_allclose(first, second, rtol=1e-12)


# estimates


def estimate(problem, seed=0, draws=250):
    found = by_moments(problem, seed, 2, draws, FEWEST)
    return found, np.stack([found.draws[name].ravel() for name in ("score_scale", "value_scale")], axis=1)


def test_estimates_are_right_and_so_are_their_errors():
    """Six times 500 networks: the mean to 2.0 standard deviations; a score_scale larger by 10 % is seen."""
    layer, found, sds = Architecture(heads=2), [], []
    for seed in range(6):
        posterior, draws = estimate(posed(observe(layer, np.eye(4), 500, 16, seed=seed), layer), seed)
        found.append([posterior.reasons[0]["numbers"][name] for name in ("score_scale", "value_scale")])
        sds.append(draws.std(axis=0))
        assert np.all(np.abs(draws.mean(axis=0) - found[-1]) < draws.std(axis=0) / 2)
    error = np.mean(sds, axis=0) / np.sqrt(6)
    assert within(np.mean(found, axis=0), 1, error)
    assert not within(np.mean(found, axis=0), [1.1, 1], error)
    np.testing.assert_allclose(np.std(found, axis=0, ddof=1) / np.mean(sds, axis=0), 1, atol=0.8)


def test_every_draw_is_said_to_be_a_replicate():
    layer = Architecture(heads=2, mask="causal")
    posterior, draws = estimate(posed(observe(layer.with_scales(1.5, 2.0), GENERAL, 800, 8), layer))
    assert posterior.method == "moments"
    assert [reason["code"] for reason in posterior.reasons] == ["bootstrap"]
    assert "not a posterior" in posterior.reasons[0]["message"]
    assert posterior.draws["score_scale"].shape == posterior.statistics["lp"].shape == (2, 250)
    assert np.all(np.abs(draws.mean(axis=0) - [1.5, 2.0]) < SIGMAS * draws.std(axis=0))
    again = by_moments(posed(observe(layer.with_scales(1.5, 2.0), GENERAL, 800, 8), layer), 0, 2, 250, FEWEST)
    np.testing.assert_array_equal(again.draws["value_scale"], posterior.draws["value_scale"])
    assert not jax.config.jax_enable_x64


def test_finite_head_dim():
    layer = Architecture(heads=2, head_dim=4)
    _, draws = estimate(posed(observe(layer, np.eye(3), 1000, 8), layer))
    assert np.all(np.abs(draws.mean(axis=0) - 1) < SIGMAS * draws.std(axis=0))
    assert draws.std(axis=0).max() < 0.1


def test_one_token_has_two_solutions():
    layer = Architecture()
    posterior, draws = estimate(posed(observe(layer, np.eye(4), 20_000, 1, [0]), layer))
    (reason,) = [r for r in posterior.reasons if r["code"] == "two_modes"]
    (q, other_q), (o, other_o) = reason["numbers"]["score_scale"], reason["numbers"]["value_scale"]
    assert 0.8 < q < 1.3
    assert 2.8 < other_q < 5.5
    assert o == pytest.approx(1, abs=0.06)
    assert other_o == pytest.approx(0.72, abs=0.04)
    assert np.mean(draws[:, 0] > 2) == pytest.approx(reason["numbers"]["mass"][1], abs=0.15)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    layer = Architecture(heads=2)
    (_, found), (_, other) = (estimate(posed(observe(layer, GENERAL, 100, 4, scale=c), layer), draws=50) for c in (1.0, scale))
    np.testing.assert_allclose(other, found * [1, scale], rtol=1e-4)


@pytest.mark.parametrize("K", [np.ones((4, 4)), np.array([[2.0]])], ids=["equal tokens", "one token"])
def test_score_scale_that_does_not_matter_keeps_its_prior(K):
    layer = Architecture(heads=2)
    problem = posed(observe(layer, K, 300, 4), layer, {"score_scale": dist.LogNormal(1.0, 0.5)})
    posterior, draws = estimate(problem)
    assert [reason["code"] for reason in posterior.reasons] == ["bootstrap", "unidentified"]
    assert stats.kstest(np.log(draws[:, 0]), stats.norm(1.0, 0.5).cdf).pvalue > 1e-6
    assert abs(draws[:, 1].mean() - 1) < SIGMAS * draws[:, 1].std()


def test_estimates_at_the_ends_are_told():
    layer = Architecture()
    problem = posed(observe(layer.with_scales(0.01, 1.0), np.eye(4), 30, 2, [0]), layer)
    codes = {reason["code"] for reason in by_moments(problem, 0, 1, 200, FEWEST).reasons}
    assert {"bootstrap", "at_an_end"} <= codes


def test_refusals():
    """In words, and none of them of the layers above."""
    y, method = RNG.normal(size=(5, 2, 3)), Moments()
    each = Observations(y, np.broadcast_to(np.eye(2), (5, 2, 2)), heads=1)
    shared = Architecture(heads=2, head_dim=4, key_value_heads=1)
    linear = Architecture(scaling="linear")
    student = pose(Observations(y, np.eye(2), heads=1), Architecture(), student_t, None)
    refused = {
        "needs one kernel for all networks": posed(each, Architecture()),
        "needs at least 2 networks": posed(Observations(y[:1], np.eye(2), heads=1), Architecture()),
        "fits limit_law and finite_head_dim, not the model student_t": student,
        "at finite head_dim fits only heads that share nothing": posed(Observations(y, np.eye(2), heads=2), shared),
        "knows no scaling 'linear' at infinite head_dim": posed(Observations(y, np.eye(2), heads=1), linear),
    }
    for words, problem in refused.items():
        assert method.refuses(problem).startswith(words)
        with pytest.raises(InputError, match=f"method: expected one that can fit this problem, got moments, which {words}"):
            route(problem, "moments", seed=0, chains=2)
    for layer in LAYERS.values():
        assert method.refuses(posed(observe(layer, GENERAL, 5, 3), layer)) is None
