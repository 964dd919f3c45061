"""Normals and uniforms of any shape: those that JAX draws, to the bit, sooner compiled and drawn on a CPU.

JAX hashes the numbers of an array's entries by Threefry-2x32 (Salmon et al. 2011). On a CPU it does so in a loop over rounds,
each of which reads and writes the whole array. Unrolled, all rounds are done while a number is in the processor
(analysis/benchmarks/sampling.py).
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


@partial(jax.jit, static_argnames=("shape", "dtype"))
def normals(rng_key: Array, shape: tuple[int, ...], dtype: Any = float) -> Float[Array, "..."]:
    """Standard normals: jax.random.normal(rng_key, shape, dtype)."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    above_minus_one = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    return jax.lax.erf_inv(uniforms(rng_key, shape, dtype, above_minus_one)) * np.array(2**0.5, dtype)


@partial(jax.jit, static_argnames=("shape", "dtype", "minval"))
def uniforms(rng_key: Array, shape: tuple[int, ...], dtype: Any = float, minval: float = 0.0) -> Float[Array, "..."]:
    """Uniforms between minval and 1: jax.random.uniform(rng_key, shape, dtype, minval)."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    known = jax.random.key_impl(rng_key) == "threefry2x32" and jax.config.jax_threefry_partitionable
    if not known or dtype not in (np.float32, np.float64) or math.prod(shape) >= 2**32:
        return jax.random.uniform(rng_key, shape, dtype, minval)
    bits = jax.lax.optimization_barrier(_bits(rng_key, math.prod(shape), dtype))  # or XLA hashes again wherever they are used
    one = np.array(1, dtype)
    mantissa = bits >> np.array(bits.dtype.itemsize * 8 - jnp.finfo(dtype).nmant, bits.dtype)
    fraction = jax.lax.bitcast_convert_type(mantissa | one.view(bits.dtype), dtype) - one
    low = np.array(minval, dtype)
    return jnp.maximum(low, fraction * (one - low) + low).reshape(shape)


@jax.jit
def two_keys(rng_key: Array) -> tuple[Array, Array]:
    """Keys for two independent sets of numbers: those of jax.random.split."""
    first, second = jax.random.split(rng_key)
    return first, second


def _bits(rng_key: Array, size: int, dtype: Any) -> UInt[Array, " {size}"]:
    """As many bits as a number has, for each of 0 .. size - 1: twenty rounds, a part of the key added after every four."""
    first, second = jax.random.key_data(rng_key)
    keys = first, second, first ^ second ^ np.uint32(PARITY)
    a, b = jnp.full(size, keys[0]), jnp.arange(size, dtype=np.uint32) + keys[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            a = a + b
            b = a ^ (b << np.uint32(r) | b >> np.uint32(32 - r))
        a, b = a + keys[(i + 1) % 3], b + keys[(i + 2) % 3] + np.uint32(i + 1)
    return a ^ b if dtype == np.float32 else a.astype(np.uint64) << np.uint64(32) | b.astype(np.uint64)
