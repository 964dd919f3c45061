"""Inference works in float64."""

import jax
import pytest
from numpyro import handlers  # noqa: F401 - before ArviZ, which would leave a lazy module behind


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield
