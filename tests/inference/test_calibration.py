"""Calibration of inference in small: ranks, coverage, a mutant that it notices, and one compilation for all replicates."""

import json

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from hierattn import Architecture
from hierattn.inference import calibration
from hierattn.inference.methods import networkwise
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.sweeps import sweep as sweeps

LAYER, K = Architecture(heads=1), np.eye(2)
PRIOR = {name: dist.LogNormal(0.0, 0.5) for name in calibration.PARAMETERS}


def run(number, draw=None, **changes):
    """One observed token of 300 networks, four coordinates each: fitted on a grid, which is quick."""
    design = calibration.Design(LAYER, K, 300, 4, [0], PRIOR, draw=draw, **changes)
    return list(calibration.replicates(design, number))


@pytest.fixture
def fewer_simulated(monkeypatch):
    """P-values of ranks by 4,000 simulated sets of them: enough for 1e-3."""
    uniformity = calibration.uniformity
    monkeypatch.setattr(calibration, "uniformity", lambda ranks: uniformity(ranks, number=4000))


@pytest.fixture(scope="module")
def found():
    return run(20)


@pytest.mark.slow  # the claim `recovery` has it at full counts
@pytest.mark.usefixtures("fewer_simulated")
def test_ranks_are_uniform_and_intervals_cover(found):
    """20 replicates. 90 % intervals cover 13 or more times but once in 1,000 times; ranks at 1e-3."""
    record = calibration.summarise(found)
    assert record["converged"] == record["replicates"] == 20
    for name in calibration.PARAMETERS:
        assert record[f"{name}_covered_90"] >= stats.binom.ppf(1e-3, 20, 0.9)
        assert record[f"{name}_covered_50"] <= stats.binom.isf(1e-3, 20, 0.5)
    p_values = {name: value for name, value in record.items() if name.endswith("p_value")}
    assert len(p_values) == 3
    assert min(p_values.values()) > 1e-3, p_values


@pytest.mark.usefixtures("fewer_simulated")
def test_outputs_of_another_scale_are_noticed():
    """Twice as large as the law's: value_scale's ranks are low, its intervals do not cover."""

    def doubled(layer, kernel, known, key, networks, coordinates):
        return 2 * calibration.draw_outputs(layer, kernel, known, key, networks, coordinates)

    record = calibration.summarise(run(5, doubled))
    assert record["value_scale_uniform_p_value"] < 1e-3
    assert record["value_scale_covered_90"] < 3


def test_replicates_share_one_compilation():
    method = Networkwise(warm_up=1, check_every=1, most_draws=50)
    replicates = calibration.replicates(calibration.Design(LAYER, K, 10, 4, prior=PRIOR, method=method), 2)
    assert not next(replicates).converged
    compiled = [f for f in (vars(networkwise) | vars(sweeps)).values() if hasattr(f, "_cache_size") and f._cache_size()]
    assert compiled
    before = [f._cache_size() for f in compiled]
    next(replicates)
    assert [f._cache_size() for f in compiled] == before


@pytest.mark.slow
def test_truth_is_a_draw_of_the_prior_or_what_is_given(found):
    scales = np.log([replicate.truth["score_scale"] for replicate in found])
    assert stats.kstest(scales, stats.norm(0, 0.5).cdf).pvalue > 1e-3
    (given,) = run(1, truth={"score_scale": 1.5})
    assert given.truth["score_scale"] == 1.5
    json.dumps(given._asdict())


@pytest.mark.parametrize(("power", "uniform"), [(1.0, True), (1.5, False)])
def test_uniformity_sees_a_slope(power, uniform):
    """Of 300 ranks; a density that rises as the square root of the distance from one end is seen."""
    ranks = (100 * np.random.default_rng(0).random(300) ** power).astype(int)
    assert (calibration.uniformity(ranks) > 1e-3) == uniform


def test_p_values_of_uniform_ranks_are_uniform():
    rng = np.random.default_rng(1)
    p = [calibration.uniformity(rng.integers(0, 100, 50), seed, 2000) for seed in range(40)]
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_new_networks_have_the_laws_mean_square():
    """E y^2 = o^2 E v against draws of the law itself; without score_scale it would differ."""
    q, o = np.full(20_000, 2.0), np.full(20_000, 1.5)
    found = calibration._mean_squares(LAYER, K, q, o, jax.random.key(0), None)
    y = calibration.draw_outputs(LAYER, K, {"score_scale": 2.0, "value_scale": 1.5}, jax.random.key(1), 20_000, 8)
    drawn = (y**2).mean(axis=(1, 2))
    error = np.sqrt(found.var() / len(found) + drawn.var() / len(drawn))
    assert abs(found.mean() - drawn.mean()) < 4.9 * error
    flat = calibration._mean_squares(LAYER, K, q / 2, o, jax.random.key(0), None)
    assert abs(flat.mean() - drawn.mean()) > 4.9 * error
