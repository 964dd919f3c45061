"""Inference works in float64 and leaves JAX's setting as it was; one small fit serves many tests."""

import jax
import numpy as np
import pytest
from numpyro import handlers  # noqa: F401 - before ArviZ, which would leave a lazy module behind

from tests.inference import tiny


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def setting_stays():
    before = jax.config.jax_enable_x64
    yield
    assert jax.config.jax_enable_x64 == before


@pytest.fixture(scope="session")
def result():
    """The default method on four networks: tokens of the first look at themselves alone, those of others nearly alike."""
    from hierattn import Observations
    from hierattn.inference.fitting import fit

    A = np.stack([np.eye(3), *3 * [0.2 * np.eye(3) + 0.8 / 3]])
    y = A @ np.linalg.cholesky(tiny.K) @ np.random.default_rng(0).normal(size=(4, 3, 8))
    return fit(Observations(y, kernel=tiny.K, heads=2), method=tiny.METHODS, chains=2, seed=1)
