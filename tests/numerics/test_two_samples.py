"""Two samples of networks: the same law passes, what differs in one respect is seen by the test that is there for it."""

import numpy as np
import pytest
from scipy import stats

from hierattn import InputError
from hierattn.numerics.two_samples import moments, two_samples


def draw(seed, networks=4000, correlation=0.3, spread=0.5, own=False):
    """Two outputs, three coordinates, a scale for every network (or for every coordinate)."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky([[1, correlation], [correlation, 1]])
    scale = np.exp(spread * rng.normal(size=(networks, 1, 3 if own else 1)) - spread**2)
    return scale * (L @ rng.normal(size=(networks, 2, 3)))


@pytest.mark.slow
def test_the_same_law_passes():
    """p-values of 200 pairs of samples: one in 100 is below 0.01, up to 5 standard errors."""
    p = np.array([two_samples(draw(2 * k, 200), draw(2 * k + 1, 200))["p_value"] for k in range(200)])
    assert (p < 0.01).mean() < 0.01 + 5 * np.sqrt(0.01 / 200)
    assert p.min() > 1e-5


def test_differences_are_seen_where_they_are():
    base = draw(0)
    assert two_samples(base, 1.3 * draw(1))["ks_p_value"] < 1e-6
    assert two_samples(base, draw(1, correlation=-0.3))["projection_p_value"] < 1e-6
    other = two_samples(base, draw(1, own=True))
    assert other["scale_p_value"] < 1e-6
    assert other["ks_p_value"] > 1e-3
    assert two_samples(base, draw(1, correlation=0.0))["product_p_value"] < 1e-6


def test_numbers():
    record = two_samples(draw(0), draw(1))
    assert record["p_value"] <= min(1.0, 4 * record["ks_p_value"])
    for side in ("finite", "limit"):  # E[exp(2 s z - 2 s^2)] = 1
        assert np.all(np.abs(np.array(record[f"variance_{side}"]) - 1) < 5 * record[f"variance_{side}_error"])
    assert record["ks_distance_floor"] == pytest.approx(0.8687 * np.sqrt(2 / 4000), rel=1e-3)
    assert stats.kstwobign.mean() == pytest.approx(0.8687, abs=1e-4)
    with pytest.raises(InputError, match="samples: expected two of one shape with at least 20 networks"):
        two_samples(draw(0), draw(0)[:, :1])


def test_moments_of_a_scale_mixture():
    """y = exp(p) z: E[y^2] = e^{2 v}, kurtosis 3 e^{4 v} - 3, and E[y^2 y'^2] = e^{8 v}, for p ~ N(0, v)."""
    import jax.numpy as jnp

    v = 0.04
    found = moments(lambda p, Z: jnp.exp(p[0]) * Z, np.ones((1, 1)), np.array([[np.sqrt(v)]]), 1)
    square, fourth, across = np.exp(2 * v), 3 * np.exp(8 * v), np.exp(8 * v)
    known = {
        "mean": 0,
        "second_moments": square,
        "excess_kurtosis": fourth / square**2 - 3,
        "square_correlation": (across - square**2) / (fourth - square**2),
    }
    for name, expected in known.items():
        value, error = (float(np.ravel(x)[0]) for x in found[name])
        assert abs(value - expected) <= error < 0.05
