"""Hidden units of which only some are drawn, against all of them, drawn here in NumPy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hierattn import MLP, InputError
from hierattn.stack.branches import perceive

NETWORKS, WIDTH, UNITS = 2**14, 64, 8
F = np.array([[1.0, 0.0], [0.6, 1.2]])
SOME = MLP(width=WIDTH, units=UNITS, activation="relu", sigma_in=0.8, sigma_out=1.3)


def products(mlp, seed=0):
    """Of two tokens' hidden units, and of each with itself, over networks."""
    with jax.enable_x64(True):
        B = perceive(jax.random.key(seed), mlp, jnp.broadcast_to(F, (NETWORKS, 2, 2)))
        found = np.asarray(B @ B.mT)
    return found[:, [0, 0, 1], [0, 1, 1]]


def all_of_them(gated):
    rng = np.random.default_rng(0)
    hidden = np.maximum(0.8 * F @ rng.normal(size=(NETWORKS, 2, WIDTH)), 0)
    if gated:
        hidden *= 0.8 * F @ rng.normal(size=(NETWORKS, 2, WIDTH))
    found = 1.3**2 / WIDTH * hidden @ hidden.swapaxes(1, 2)
    return found[:, [0, 0, 1], [0, 1, 1]]


def moments(x):
    """Means, and products of deviations, with standard errors."""
    deviations = x - x.mean(axis=0)
    pairs = np.einsum("ma,mb->mab", deviations, deviations).reshape(len(x), -1)
    both = np.concatenate([x, pairs], axis=1)
    return both.mean(axis=0), both.std(axis=0) / len(x) ** 0.5


def far(x, y):
    """Largest difference of moments, in standard errors."""
    (a, e), (b, f) = moments(x), moments(y)
    return np.max(np.abs(a - b) / np.hypot(e, f))


@pytest.mark.parametrize("gated", [False, True])
def test_some_units_have_the_mean_and_the_covariance_of_all(gated):
    """Twelve moments, at 4.5 standard errors (some 2 % of a variance); deviations that are a fifth too large are seen."""
    some, every = products(replace(SOME, gated=gated)), all_of_them(gated)
    assert far(some, every) < 4.5
    mean = every.mean(axis=0)
    for wrong in (1.2, (UNITS / WIDTH) ** 0.5, (WIDTH / UNITS) ** 0.5):
        assert far(mean + wrong * (some - mean), every) > 4.5
    assert stats.skew(some[:, 0]) > 1.5 * stats.skew(every[:, 0]) > 0  # as the description says


def test_all_units_are_the_law_itself():
    exact = products(replace(SOME, units=None))
    np.testing.assert_array_equal(products(replace(SOME, units=WIDTH)), exact)
    assert far(exact, all_of_them(False)) < 4.5


def test_of_infinitely_many_units_none_is_drawn():
    with pytest.raises(
        InputError, match="units: expected None for infinitely many hidden units, got 8; of these none is drawn"
    ):
        MLP(units=8)
    with pytest.raises(InputError, match="units: expected a positive whole number"):
        MLP(width=8, units=0)
