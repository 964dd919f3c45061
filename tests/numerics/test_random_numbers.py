"""Random numbers are those of JAX, to the bit."""

import jax
import numpy as np
import pytest

from hierattn.numerics.random_numbers import normals, uniforms

SHAPES = [(), (5,), (0, 3), (300, 2, 4, 4), (3, 2, 64), (2, 70, 1)]
SELDOM = [
    ((5,), np.float32),
    ((0, 3), np.float32),
    ((3, 2, 64), np.float64),
    ((2, 70, 1), np.float64),
]  # of the other type always
CASES = [(shape, dtype) for dtype in (np.float32, np.float64) for shape in SHAPES]
KEYS = {
    "typed": jax.random.key(3),
    "split": jax.random.split(jax.random.key(2**31 + 7), 3)[2],
    "raw": jax.random.PRNGKey(3),
    "another generator's": jax.random.key(3, impl="rbg"),
}


@pytest.mark.parametrize(
    ("shape", "dtype"), [pytest.param(*case, marks=pytest.mark.slow) if case in SELDOM else case for case in CASES]
)
def test_they_are_those_of_jax(shape, dtype):
    with jax.enable_x64(dtype is np.float64):
        for key in KEYS.values():
            np.testing.assert_array_equal(normals(key, shape, dtype), jax.random.normal(key, shape, dtype))
            np.testing.assert_array_equal(uniforms(key, shape, dtype, -1.0), jax.random.uniform(key, shape, dtype, -1.0))


def test_types_are_those_of_jax():
    for dtype in (float, np.float16):
        ours, theirs = normals(KEYS["typed"], (9,), dtype), jax.random.normal(KEYS["typed"], (9,), dtype)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_compiled_and_mapped_over_keys():
    keys = jax.random.split(KEYS["typed"], 4)
    for draw in (jax.vmap(lambda key: normals(key, (7, 3))), jax.jit(jax.vmap(lambda key: normals(key, (7, 3))))):
        np.testing.assert_array_equal(draw(keys), jax.vmap(lambda key: jax.random.normal(key, (7, 3)))(keys))


def test_the_older_numbering_of_entries():
    """JAX can be told to number entries as it did before: then it draws itself."""
    with jax.threefry_partitionable(False):
        np.testing.assert_array_equal(normals(KEYS["typed"], (5, 2)), jax.random.normal(KEYS["typed"], (5, 2)))
        older = np.asarray(normals(KEYS["typed"], (5, 2)))
    assert not np.array_equal(older, normals(KEYS["typed"], (5, 2)))


def test_one_call_outside_of_jit_is_one_compiled_function(caplog):
    normals(KEYS["typed"], (11, 2))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        normals(KEYS["split"], (11, 2))
        normals(KEYS["split"], (2, 11))
    assert caplog.text.count("Finished XLA compilation") == 1  # for the other shape
