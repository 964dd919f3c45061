"""Time against head_dim with normed queries and keys: outputs of 65,536 networks, 8 tokens, 4 heads; CPU time."""

import time

import jax
import numpy as np
from timing import record

from hierattn import Architecture, Law

NETWORKS, HEAD_DIMS, REPEATS = 2**16, (16, 64, 256, 1024, 4096), 5
K = np.eye(8) + 0.3


def cpu_seconds(law: Law) -> float:
    """The fewest of some draws, all compiled."""
    taken = []
    for seed in range(REPEATS + 1):
        start = time.process_time()
        jax.block_until_ready(law.sample(jax.random.key(seed), NETWORKS, 4))
        taken.append(time.process_time() - start)
    return min(taken[1:])


seconds = {n: cpu_seconds(Law(Architecture(heads=4, head_dim=n, qk_norm="rms"), K)) for n in HEAD_DIMS}
for n, each in seconds.items():
    print(f"head_dim {n:5d}: {each:.3f} CPU-s; / head_dim 16 = {each / seconds[16]:.2f}")
record("head_dim", {f"head_dim {n} / head_dim 16": each / seconds[16] for n, each in seconds.items() if n > 16})
