"""Fits within a budget, by a clock that the method itself moves: which route is taken, what is said, what is kept."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import InputError, Law, Observations
from hierattn.inference import predictions
from hierattn.inference.checkpoints import networks_begun
from hierattn.inference.course.budget import budget_of, in_words
from hierattn.inference.course.compiling import compiling
from hierattn.inference.course.pace import Pace, rounded
from hierattn.inference.course.watching import NOBODY
from hierattn.inference.fitting import fit, plan
from hierattn.inference.methods.moments import Moments
from tests.inference import tiny
from tests.inference.course.ticking import Ear, Ticking
from tests.inference.trees import codes

NETWORKS = 200
Y = np.asarray(Law(tiny.LAYER, tiny.K).sample(jax.random.key(0), networks=NETWORKS, coordinates=16))


@pytest.fixture(autouse=True)
def no_predictions(monkeypatch):
    """Predictions, which take a while to compile, replaced by zeros."""

    def new_networks(problem, parameters, width, seed):
        return [np.zeros((1, 1, problem.observations.networks, problem.observations.s, 1)) for _ in parameters]

    monkeypatch.setattr(predictions, "new_networks", new_networks)


def run(seconds, *, kernel=tiny.K, asked=False, moments=False, **options):
    """A fit of 200 networks whose chunk takes `tick` seconds a network; also what was said, and the method."""
    how = {name: options.pop(name) for name in ("tick", "good", "most_draws") if name in options}
    ear, method = Ear(), Ticking(**how)
    methods = method if asked else (method, Moments(draws=10, most_points=2**8)) if moments else (method,)
    budget = method.clock.budget(seconds)
    options = {"chains": 2, "log_likelihood": False, "try_heads": (), "advance": ear, "budget": budget} | options
    found = fit(Observations(Y, kernel=kernel, heads=2), method=methods, **options)
    return found, ear, method


def numbers(tree, code="budget"):
    (found,) = [each for each in json.loads(tree.attrs["reasons"]) if each["code"] == code]
    return found["numbers"] | {"message": found["message"]}


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5m", 90), (7, 7), ("none", np.inf), (None, np.inf)]
)
def test_budgets_in_words(given, seconds):
    assert budget_of(given).seconds == seconds


@pytest.mark.parametrize("given", ["", "5", "5 m", "m", "-3s", 0, -1, True, np.inf, [3], "0s"])
def test_what_is_no_time_is_refused(given):
    with pytest.raises(InputError, match="budget: expected a time such as 90s, 5m or 1h30m, or none, got"):
        fit(tiny.observations(), budget=given)


def test_times_in_words_and_numbers_with_two_digits():
    assert [in_words(x) for x in (7.04, 90, 99.9, 300, 5000, 9000)] == ["7 s", "90 s", "1.7 min", "5 min", "83 min", "2.5 h"]
    assert [rounded(x) for x in (0.3, 7.9, 11, 19.9, 23, 111, 999, 1e4)] == [0, 7, 10, 15, 20, 100, 800, 10_000]


def test_enough_time_changes_nothing_and_is_known_first():
    """10 s a chunk, and 10 of compiling: 30 s of trial, 80 s for the other 8 chunks, and 10 + 20 for likelihoods."""
    free, ear, method = run(np.inf)
    assert method.clock.now - 1000 == 10 + 10 * 9  # 200 good draws after 150 bad ones and the warm-up
    size = "ticking, 200 networks x 3 x 3 tokens x 2 heads"
    usual = "if 400 draws of each chain suffice as usual (at most 1,000 draws, 4.3 min)"
    assert ear.said == [f"{size}: about 2.3 min by a trial of 30 s, {usual}; budget no limit"]
    assert ear.phases == ["warm-up", "sampling"]
    within, ear, _ = run(130.0)
    assert "budget 2.2 min" in ear.said[0]
    assert codes(within) == codes(free)
    assert "budget" not in codes(within)
    assert within.attrs["verdict"] == "CONVERGED"
    np.testing.assert_array_equal(within["posterior"]["score_scale"], free["posterior"]["score_scale"])


@pytest.mark.parametrize("moments", [False, True])
def test_fewer_networks_are_fitted_if_all_take_too_long(moments, tmp_path):
    """After 30 s, 55 are left of 85 % of 100, 10 of which compile: 45 s, at .5 s a network. The same as with --networks 80."""
    found, ear, method = run(100.0, moments=moments, out=tmp_path / "fit.nc")
    assert found["constant_data"].sizes["network"] == 80
    told = numbers(found)
    assert (told["networks"], told["of"], told["budget"]) == (80, 200, 100.0)
    assert told["seconds"] == pytest.approx(30 + 8 * 10)
    assert "ticking on all 200 networks would take about 1.8 min, more than the budget of 1.7 min" in told["message"]
    assert "intervals are about 1.6 times as wide; for all use --budget none" in told["message"]
    assert told["message"] in ear.said
    assert method.clock.now - 1000 == 30 + 10 + 9 * 4
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]
    first = fit(Observations(Y[:80], kernel=tiny.K, heads=2), method=(Ticking(),), chains=2, log_likelihood=False)
    for name in ("score_scale", "value_scale"):
        np.testing.assert_array_equal(found["posterior"][name], first["posterior"][name])
        np.testing.assert_array_equal(found["log_prior"][name], first["log_prior"][name])


def test_moments_are_taken_if_networks_would_be_too_few():
    """After 20 s of a first chunk, which is long then, and 10 to compile again 9 s are left: for 18 networks."""
    found, ear, method = run(46.0, moments=True)
    assert found.attrs["method"] == "moments"
    assert found["constant_data"].sizes["network"] == 200
    told = numbers(found)
    assert "these are estimates from moments, no posterior; for that use --budget none" in told["message"]
    assert method.clock.now - 1000 == 20
    assert "moments, 200 networks x 3 x 3 tokens x 2 heads: no chains" in ear.said[-1]


def test_a_method_that_was_asked_for_is_not_replaced():
    """It is refused where it cannot even begin, and else ends where the budget does."""
    with pytest.raises(InputError) as raised:
        run(20.0, asked=True)
    expected = "budget: expected about 1.8 min for ticking, got 20 s; give --budget 2m, --method moments or --method auto"
    assert str(raised.value) == expected
    found, _, _ = run(100.0, asked=True, good=10_000)
    assert found["constant_data"].sizes["network"] == 200
    assert found.attrs["verdict"] == "NOT CONVERGED"


def test_the_end_of_the_budget_is_a_verdict_and_what_is_done_is_kept(tmp_path):
    """Chains agree after 700 draws; the budget allows 600 in 85 % of 170 s. Resumed, they end as if there had been none."""
    out = tmp_path / "fit.nc"
    options = {"good": 700, "out": out}
    found, _, method = run(170.0, **options)
    assert found.attrs["verdict"] == "NOT CONVERGED"
    told = numbers(found)
    assert told["draws"] == 600
    assert told["budget"] == 170.0
    assert "the budget of 2.8 min ended for chains after 600 draws of each chain, before they agreed" in told["message"]
    assert "kept beside the file: go on with --budget none --resume --force" in told["message"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.nc", "fit.nc.resume"]
    resumed, ear, again = run(np.inf, **options, resume=True, force=True)
    assert resumed.attrs["verdict"] == "CONVERGED"
    assert again.clock.now - method.clock.now < 0  # nothing was done twice
    assert ear.phases == ["warm-up", "sampling"]
    whole, _, _ = run(np.inf, good=700)
    np.testing.assert_array_equal(resumed["posterior"]["score_scale"], whole["posterior"]["score_scale"])
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]
    alone, _, _ = run(170.0, good=700)
    assert "budget=None for no limit" in numbers(alone)["message"]


class StopError(Exception):
    pass


def test_a_run_with_fewer_networks_resumes_with_as_many(tmp_path):
    """The same command with --resume; by all networks it would be another run."""
    out = tmp_path / "fit.nc"

    class Interrupted(Ear):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def step(self, done):
            self.steps += 1
            if self.steps == 6:  # two of the trial, four of the run with fewer
                raise StopError

    with pytest.raises(StopError):
        run(100.0, out=out, advance=Interrupted())
    assert networks_begun(f"{out}.resume") == 80
    found, _, _ = run(100.0, out=out, resume=True)
    assert found["constant_data"].sizes["network"] == 80
    assert "as when the run began, the first 80 of 200 networks" in numbers(found)["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]


def test_likelihoods_for_which_there_is_no_time_are_left_out(monkeypatch):
    """30 s are needed; the reason says so, and a fit without a limit does not."""
    monkeypatch.setattr(Ticking, "log_likelihood", lambda self, problem, found, run: "the method ticking has none")
    found, _, _ = run(130.0, good=250, log_likelihood=True)
    assert "about 30 s more, more than is left of the budget of 2.2 min" in numbers(found, "no_log_likelihood")["message"]
    found, ear, _ = run(np.inf, log_likelihood=True)
    assert "has none" in numbers(found, "no_log_likelihood")["message"]
    assert ear.phases[-1] == "likelihoods"


def test_a_long_first_chunk_is_trial_enough():
    """Of 10 seconds of compilation and 60 of chunk; its estimate is that of two."""
    (found, ear, method), (_, usual, _) = (run(seconds, tick=0.3) for seconds in (300.0, 3000.0))
    assert "about 12 min by a trial of 70 s" in ear.said[0]
    assert "about 12 min by a trial of 2.2 min" in usual.said[0]
    assert numbers(found)["networks"] == 50
    assert method.clock.now - 1000 <= 300


def test_what_jax_compiles_is_counted():
    """Some of the time that it takes, and nothing where all is compiled."""
    f, x = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.cos(c) @ c, None), x, length=3)[0]), np.ones((2, 2))
    before, start = compiling(), time.monotonic()
    f(x).block_until_ready()
    took, first = time.monotonic() - start, compiling()
    assert 0 < first - before < 1.5 * took
    f(x).block_until_ready()
    assert compiling() == first


def test_a_resumed_run_is_not_judged_again_and_counts_what_it_had(tmp_path):
    """It has 600 draws of the first 170 s, 3 chunks more within 85 % of 41 s, and ends again."""
    options = {"good": 10_000, "most_draws": 10_000, "out": tmp_path / "fit.nc"}
    run(170.0, **options)
    found, _, _ = run(41.0, **options, resume=True, force=True)
    assert numbers(found)["draws"] == 750
    late = []
    pace = Pace(NOBODY, method := Ticking(), method.clock.budget(100.0), chunks=1, late=lambda pace: late.append(pace))
    pace.starts(plan(Observations(Y, kernel=tiny.K, heads=2), method=method).problem)
    method.clock.now += 99.0
    pace.step(50)
    assert pace.too_long()
    assert late == []


def test_networks_are_judged_by_the_latest_chunk_and_doubted_at_the_beginning():
    """An expectation of less than twice the budget is believed once a quarter of the budget is used."""
    late = []
    method = Ticking()
    pace = Pace(NOBODY, method, method.clock.budget(1000.0), late=lambda pace: late.append(pace.elapsed))
    pace.starts(plan(Observations(Y, kernel=tiny.K, heads=2), method=method).problem)
    for seconds in (12.0, 150.0):
        method.clock.now += seconds
        pace.step(10)
    assert pace.too_long()  # 15 s a draw, 500 draws: far more than twice
    assert late == [162.0]
    method = Ticking()
    pace = Pace(NOBODY, method, method.clock.budget(1000.0), late=lambda pace: late.append(pace.elapsed))
    pace.starts(plan(Observations(Y, kernel=tiny.K, heads=2), method=method).problem)
    for seconds in (12.0, 30.0, 30.0):  # some 1,500 s
        method.clock.now += seconds
        pace.step(10)
    assert late == [162.0]
    for _ in range(6):
        method.clock.now += 30.0
        pace.step(10)
    assert late[1] == 252.0
