"""Random numbers drawn along few axes are those of JAX."""

import jax
import numpy as np
import pytest

from hierattn.random_numbers import normals, uniforms

KEY = jax.random.key(3)


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (300, 2, 4, 4), (3, 2, 64), (2, 70, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_are_those_of_jax(shape, dtype):
    with jax.enable_x64(dtype is np.float64):
        np.testing.assert_array_equal(normals(KEY, shape, dtype), jax.random.normal(KEY, shape, dtype))
        np.testing.assert_array_equal(uniforms(KEY, shape, dtype, -1.0), jax.random.uniform(KEY, shape, dtype, -1.0))
