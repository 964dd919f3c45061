"""Predictions: of new networks with fresh scores, of observed ones with their own."""

import jax
import numpy as np

from hierattn import Law
from hierattn.inference import predictions
from hierattn.inference.calling import lookup
from hierattn.inference.problem import pose
from tests.inference import tiny
from tests.statistics import same_joint_law


def test_new_networks_have_fresh_scores_and_observed_ones_their_own(result):
    """Tokens of the first network are less alike than of others: so they are in its own predictions, in no new network's."""
    ratios = {}
    for group in ("observed_data", "posterior_predictive", "conditional_predictive"):
        apart = np.moveaxis(np.diff(result[group]["y"], axis=-2) ** 2, -3, 0).reshape(4, -1).mean(axis=1)
        ratios[group] = apart[0] / apart[1:].mean()
    print(ratios)
    assert ratios["observed_data"] > 5
    assert ratios["conditional_predictive"] > 2
    assert abs(ratios["posterior_predictive"] - 1) < 0.5  # some five standard errors of 200 draws


def test_predictions_follow_the_law():
    """1,500 networks with parameters fixed, against the law's own sampler; a score_scale of 2 instead of 1 is seen."""
    problem = pose(tiny.observations(networks=3), tiny.LAYER, lookup("limit_law"), None)
    parameters = {"score_scale": np.ones((1, 500)), "value_scale": np.full((1, 500), 1.3)}
    others = {"score_scale": np.full((2, 20), 1e-6), "value_scale": np.full((2, 20), 1.3)}
    unlike, y = predictions.new_networks(problem, [others, parameters], None, 0)
    assert unlike.shape == (2, 20, 3, 3, 8)
    rng, y = np.random.default_rng(0), y.reshape(1500, 3, 8)
    right, wrong = (Law(tiny.LAYER.with_scales(q, 1.3), tiny.K).sample(jax.random.key(0), 20_000, 8) for q in (1.0, 2.0))
    assert same_joint_law(y, right, rng)
    assert not same_joint_law(y, wrong, rng)
    corner = np.corrcoef(np.moveaxis(unlike, -1, 0).reshape(-1, 3).T)
    assert np.all(corner > 0.999)  # without scores all tokens have the same output
