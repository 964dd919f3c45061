"""How close is joint sampling to its limit, the cost of the random numbers themselves?

Draws networks of H = 8 heads, s = 16 tokens, 16 coordinates in float32 from the law, and the same number of standard normals
with jax.random.normal, once in one call and once in chunks that stay in the cache. Prints the ratios of the times.
"""

import jax
import numpy as np
from timing import fastest

from hierattn import Architecture, Law, kernels

HEADS, TOKENS, COORDINATES, NETWORKS, CHUNK = 8, 16, 16, 8192, 2**20
law = Law(Architecture(heads=HEADS), kernels.rbf(TOKENS, 3.0).astype(np.float32))
numbers = NETWORKS * HEADS * (TOKENS**2 + TOKENS * COORDINATES)
key = jax.random.key(0)
one_call = jax.jit(lambda key: jax.random.normal(key, (numbers,)))
chunk = jax.jit(lambda key: jax.random.normal(key, (CHUNK,)))


def sample():
    return law.sample(key, NETWORKS, COORDINATES)


def in_chunks():
    return [chunk(jax.random.fold_in(key, c)) for c in range(numbers // CHUNK)]


times = fastest({"law": sample, "normals in one call": lambda: one_call(key), "normals in chunks": in_chunks})
print(f"H = {HEADS}, s = {TOKENS}, {COORDINATES} coordinates, {NETWORKS} networks: {numbers / 1e6:.0f} million normals")
for name, seconds in times.items():
    ratio = times["law"] / seconds
    print(f"  {name:20s} {seconds:.3f} s, {numbers / seconds / 1e6:4.0f} million numbers/s; law / this = {ratio:.2f}")
