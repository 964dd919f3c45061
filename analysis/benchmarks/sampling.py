"""How close is joint sampling to its limit, the cost of the random numbers themselves?

Draws networks of H = 8 heads, s = 16 tokens, 16 coordinates in float32 from the law, and the same number of standard normals,
in chunks that stay in the cache, with jax.random.normal and with our own function, whose numbers are the same. Prints the
ratios of the times.
"""

from functools import partial

import jax
import numpy as np
from timing import fastest, record

from hierattn import Architecture, Law, kernels
from hierattn.numerics.random_numbers import normals

HEADS, TOKENS, COORDINATES, NETWORKS, CHUNK = 8, 16, 16, 8192, 2**20
law = Law(Architecture(heads=HEADS), kernels.rbf(TOKENS, 3.0).astype(np.float32))
numbers = NETWORKS * HEADS * (TOKENS**2 + TOKENS * COORDINATES)
key = jax.random.key(0)
CHUNKS = {name: jax.jit(lambda key, f=f: f(key, (CHUNK,))) for name, f in {"ours": normals, "JAX's": jax.random.normal}.items()}


def sample():
    return law.sample(key, NETWORKS, COORDINATES)


def in_chunks(name):
    return [CHUNKS[name](jax.random.fold_in(key, c)) for c in range(numbers // CHUNK)]


times = fastest({"law": sample} | {f"normals, {name}": partial(in_chunks, name) for name in CHUNKS})
print(f"H = {HEADS}, s = {TOKENS}, {COORDINATES} coordinates, {NETWORKS} networks: {numbers / 1e6:.0f} million normals")
for name, seconds in times.items():
    ratio = times["law"] / seconds
    print(f"  {name:20s} {seconds:.3f} s, {numbers / seconds / 1e6:4.0f} million numbers/s; law / this = {ratio:.2f}")
record("sampling", {f"law / {name}": times["law"] / times[name] for name in times if name != "law"})
