"""The comparison used in tests must see what it is there to see: the four standard mistakes, at the sample sizes in use."""

import jax
import numpy as np
import pytest

from hierattn import Architecture, Law, kernels
from tests.statistics import same_joint_law

K, NETWORKS, COORDINATES = kernels.equicorrelated(4), 20_000, 8
LAYER = Architecture(heads=2, sigma_q=1.6)


def draw(seed, layer=LAYER):
    return np.asarray(Law(layer, K).sample(jax.random.key(seed), NETWORKS, COORDINATES), float)


def heads_correlated(seed):
    """Both heads with the scores of the first."""
    law = Law(LAYER, K)
    p = law.sample_scores(jax.random.key(seed), NETWORKS)
    return law.sample_given(jax.random.key(seed), p.at[:, 1].set(p[:, 0]), COORDINATES)


def own_scores(seed):
    """Every coordinate with scores of its own."""
    return np.stack([draw(seed + c)[:, :, 0] for c in range(COORDINATES)], axis=-1)


MUTANTS = {
    "score_scale off by 10 %": lambda: draw(2, LAYER.replace(sigma_q=1.76)),
    "1 / sqrt(H) dropped": lambda: np.sqrt(2) * draw(2),
    "heads correlated": lambda: heads_correlated(2),
    "coordinates with their own scores": lambda: own_scores(2),
}


def test_the_same_law_passes():
    assert same_joint_law(draw(0), draw(1), np.random.default_rng(0))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_rejected(name):
    assert not same_joint_law(draw(0), MUTANTS[name](), np.random.default_rng(0))
