"""Other numbers of heads: the right one wins on its own data, and evidences are those of importance sampling from the prior."""

import functools
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

from hierattn import Architecture, InputError, fit, kernels
from hierattn.inference import predictions
from hierattn.inference.fitting import plan
from hierattn.inference.integration import heads
from hierattn.inference.integration.heads import CLEARLY, Tried, compared, named, tried, try_heads, unasked
from hierattn.inference.likelihood import Terms, log_likelihood
from hierattn.inference.methods.importance import _of_scores
from hierattn.inference.methods.moments import Moments
from tests.inference import drawn, tiny
from tests.inference.course.ticking import Ticking
from tests.inference.trees import codes

K, NETWORKS, SCORE_SCALE = kernels.equicorrelated(3, 0.3), 40, 2.0


@functools.cache
def problem(truth, given, coordinates=16):
    """Outputs of so many heads, fitted with others."""
    observations = drawn.observe(Architecture(heads=truth, sigma_q=SCORE_SCALE), K, NETWORKS, coordinates)
    posed = plan(observations).problem
    return replace(posed, layer=posed.layer.replace(heads=given))


@functools.cache
def found(truth):
    """Evidence of one and of four heads."""
    return try_heads(problem(truth, 1), (1, 4), (SCORE_SCALE, 1.0), 0)


@pytest.mark.parametrize("truth", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_the_right_number_of_heads_wins_on_its_own_data(truth):
    """By 10 or more standard errors here; the other number is named as wrong, the right one is not."""
    rows, other = compared(found(truth)), 5 - truth
    assert [row["heads"] for row in rows] == [truth, other]
    assert rows[1]["difference"] > CLEARLY * rows[1]["difference_error"] > 0
    assert (rows[0]["difference"], rows[0]["difference_error"]) == (0.0, 0.0)
    (said,) = named(rows, other)
    assert said["code"] == "heads"
    assert f"look like those of {truth}, not {other}, heads" in said["message"]
    assert f"--heads {truth}" in said["message"]
    assert named(rows, truth) == []
    scales = [[each.score_scale, each.value_scale] for each in found(truth) if each.heads == truth]
    np.testing.assert_allclose(scales, [[SCORE_SCALE, 1.0]], rtol=0.3)


@pytest.mark.usefixtures("float64")
def test_evidence_is_that_of_scores_drawn_from_their_prior():
    """Two coordinates, one head. Standard error of the sum over 40 networks 1.6; value_scale off by half is seen."""
    posed = problem(1, 1, 2)
    one = tried(posed, 1, (SCORE_SCALE, 1.0), 0)
    data, scale = posed.data(), posed.observations.scale
    E = jnp.asarray(np.random.default_rng(0).normal(size=(*data.latent_shape[:-1], 2**15)))

    def brute(q, o):
        trace, logdet = _of_scores(data, E, q)
        value = log_likelihood(data, Terms(logdet, trace), o / scale)
        value = jnp.where(jnp.isnan(value), -jnp.inf, value)
        shares = jnp.exp(value - value.max(axis=1, keepdims=True))
        error = shares.std(axis=1) / shares.mean(axis=1) / value.shape[1] ** 0.5
        evidence = logsumexp(value, axis=1) - jnp.log(value.shape[1]) - 2 * 3 * jnp.log(scale)
        return np.asarray(evidence), np.asarray(error)

    evidence, error = brute(one.score_scale, one.value_scale)
    se = np.sqrt(np.sum(error**2) + np.sum(one.error**2))
    assert se < 2.0
    assert abs(np.sum(evidence - one.log_evidence)) < 4 * se
    off, _ = brute(one.score_scale, 1.5 * one.value_scale)
    assert abs(np.sum(off - one.log_evidence)) > 4 * se


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("number", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_error_of_integration_is_what_other_seeds_scatter(number):
    """Of each number of heads on its own, with outputs of four."""
    every = [tried(problem(4, number), number, (SCORE_SCALE, 1.0), seed) for seed in (0, 10, 20, 30)]
    scatter, told = np.std([each.log_evidence.sum() for each in every], ddof=1), np.sqrt(np.sum(every[0].error ** 2))
    assert told / 10 < scatter < 3 * told


def test_errors_are_those_of_paired_differences():
    """Evidences that vary by 100 from network to network, and differ by 1 +- .1 a network."""
    rng = np.random.default_rng(0)
    common, gap = rng.normal(0, 100, 50), rng.normal(1, 0.1, 50)
    none = np.zeros(50)
    rows = compared([Tried(2, 1.0, 1.0, common - gap, none), Tried(1, 1.0, 1.0, common, none)])
    assert rows[1]["heads"] == 2
    assert rows[1]["difference"] == pytest.approx(gap.sum())
    assert rows[1]["difference_error"] == pytest.approx(np.sqrt(50) * gap.std(ddof=1))
    assert rows[0]["log_evidence"] == pytest.approx(common.mean())
    assert named(rows, 2)
    noisy = compared([Tried(2, 1.0, 1.0, common - rng.normal(0.1, 1, 50), none), Tried(1, 1.0, 1.0, common, none)])
    assert named(noisy, 2) == []
    few = compared([Tried(2, 1.0, 1.0, common[:9] - 5, none), Tried(1, 1.0, 1.0, common[:9], none)])
    assert named(few, 2) == []


def some(problem, numbers, place, seed):
    """Instead of particles: the largest number is best by 5 +- .5 a network."""
    rng = np.random.default_rng(0)
    every = sorted({problem.layer.heads, *numbers})
    return [Tried(H, *place, 5.0 * (every[-1] == H) + rng.normal(0, 0.3, 20), np.zeros(20)) for H in every]


def test_a_fit_tries_what_it_is_asked_to_and_names_what_is_better(monkeypatch):
    monkeypatch.setattr(heads, "try_heads", some)
    quick = {"method": Moments(draws=10, most_points=2**8), "chains": 2}
    result = fit(tiny.observations(), try_heads=(1, 4), **quick)
    rows = json.loads(result.attrs["heads_tried"])
    assert rows[0]["heads"] == 4
    assert {row["heads"] for row in rows} == {1, 2, 4}
    assert codes(result)[-1] == "heads"
    plain = fit(tiny.observations(), **quick)
    assert "heads_tried" not in plain.attrs


def test_unasked_only_where_nobody_but_the_user_says_how_many_there_are_and_it_costs_little():
    """Not of fewer than ten networks either, nor where it cannot be done."""

    def numbers(networks=NETWORKS, heads=2, **layer):
        posed = problem(1, 2)
        changed = {"layer": posed.layer.replace(heads=heads, **layer), "observations": posed.observations.first(networks)}
        return unasked(replace(posed, **changed))

    assert (numbers(), numbers(heads=1), numbers(heads=3)) == ((1, 4), (2, 4), (1, 6))
    assert numbers(networks=9) == numbers(rotary=[1.0]) == numbers(heads=64) == ()
    assert unasked(plan(tiny.observations(layer=tiny.LAYER)).problem) == ()


@pytest.mark.parametrize(
    ("asked", "good", "seconds", "tried"),
    [
        ("auto", 0, 1e4, True),
        (None, 0, 1e4, False),
        (None, 10_000, 1e4, True),
        ((), 10_000, 1e4, False),
        ("auto", 0, 100, False),
    ],
)
def test_when_they_are_tried(monkeypatch, asked, good, seconds, tried):
    """Without being asked where chains do not converge; always if "auto" is, but not when 130 of 100 seconds are over."""
    monkeypatch.setattr(heads, "try_heads", some)
    monkeypatch.setattr(predictions, "new_networks", lambda problem, given, *_: [np.zeros((1, 1, 40, 3, 1))] * len(given))
    observations, method = drawn.observe(Architecture(heads=2), K, NETWORKS, 4), Ticking(tick=1.0, good=good, most_draws=400)
    options = {"chains": 2, "log_likelihood": False, "try_heads": asked, "budget": method.clock.budget(seconds)}
    assert ("heads_tried" in fit(observations, method=method, **options).attrs) == tried


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"try_heads": (0,)}, "try_heads: expected a positive whole number, got 0"),
        (
            {"try_heads": (2,), "model": "student_t"},
            "try_heads: expected the limit law with a known kernel, got the model student_t",
        ),
        (
            {"try_heads": (2,), "layer": tiny.LAYER.replace(bias=np.zeros((2, 3, 3)))},
            "got a bias for each of them; leave it out",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused_before_the_fit(options, words):
    with pytest.raises(InputError) as raised:
        fit(tiny.observations(), **options)
    assert words in str(raised.value)
