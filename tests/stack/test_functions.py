"""Kernels of activations for many networks at once, against quadrature token by token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn.layer.activations import dual_by_quadrature
from hierattn.stack.functions import FUNCTIONS, dual, function_of

COMPILED = jax.jit(dual, static_argnums=0)
K = np.array([[1.7, 0.5, -0.9], [0.5, 0.6, 0.1], [-0.9, 0.1, 2.2]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dual_is_the_integral(name):
    with jax.enable_x64(True):
        found = np.asarray(COMPILED(name, jnp.asarray(K)[None]))[0]
    exact = [[dual_by_quadrature(function_of(name), K[i, i], K[j, j], K[i, j]) for j in range(3)] for i in range(3)]
    assert np.allclose(found, exact, rtol=0, atol=1e-8)  # tanh is worst: its coefficients fall slowest


def test_tokens_that_are_one_and_tokens_that_are_zero():
    one, zero = np.ones((1, 2, 2)), np.zeros((1, 2, 2))
    with jax.enable_x64(True):
        for name in FUNCTIONS:
            assert np.ptp(np.asarray(COMPILED(name, jnp.asarray(one)))) < 1e-12
            assert np.allclose(np.asarray(COMPILED(name, jnp.asarray(zero))), 0, atol=1e-12)
