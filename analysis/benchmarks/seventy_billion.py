"""A config of 70 billion parameters, layer by layer, on this machine: exactly, and with 1,024 of its 28,672 hidden units drawn.

80 layers, width 8192, 64 heads of 128 (8 of keys and values), 16 tokens, 32 networks. Seconds, how many times a Python loop of
10^7 additions that is, and the largest memory of the process.
"""

import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
from timing import loop_seconds, record

from hierattn import Stack, stack_from_config

NETWORKS, TOKENS, UNITS = 32, 16, 1024
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.02,
}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(CONFIG))
    exact = stack_from_config(path, list(range(TOKENS)))


def some_units(stack: Stack) -> Stack:
    """Few of the hidden units are drawn."""
    return stack.replace(blocks=[replace(block, mlp=replace(block.mlp, units=UNITS)) for block in stack.blocks])


numbers, loop = {}, loop_seconds()
for name, stack in (("exact", exact), (f"{UNITS} units", some_units(exact))):
    start = time.perf_counter()
    streams = stack.sample(jax.random.key(0), NETWORKS)
    took = time.perf_counter() - start
    numbers |= {f"{name}: seconds": took, f"{name}: loops": took / loop}
    cosine = 1 - streams.apart[:, -1, 0, 1]
    numbers |= {f"{name}: last cosine": float(cosine.mean()), f"{name}: its spread": float(cosine.std(ddof=1))}
numbers["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
for name, value in numbers.items():
    print(f"  {name:30s} {value:.3g}")
record("seventy_billion", numbers)
