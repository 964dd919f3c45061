"""Hard designs (networks, tokens, heads, coordinates): `hierattn fit` ends CONVERGED within five minutes, the whole command:
sharp attention of one head, finite head dimensions, a kernel per network, unknown kernels, masks, rotary embeddings; five seeds
each."""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

from hierattn import Architecture, Law, kernels, rotary_frequencies
from hierattn.layer import record

SEED = 0
SEEDS, LIMIT = 5, 300.0
HIERATTN = Path(sys.executable).parent / "hierattn"


def drawn(layer: Architecture, K: np.ndarray, networks: int, coordinates: int, seed: int) -> np.ndarray:
    """Outputs of the law; with K (network, token, token) every network has its own."""
    if K.ndim == 2:
        return np.asarray(Law(layer, K).sample(jax.random.key(seed), networks, coordinates))
    keys = jax.random.split(jax.random.key(seed), networks)
    return np.concatenate([np.asarray(Law(layer, K[m]).sample(keys[m], 1, coordinates)) for m in range(networks)])


def own_kernels(networks: int, tokens: int, seed: int = 0) -> np.ndarray:
    """Of random inputs of width 64, tokens of norm 1 on average."""
    X = np.random.default_rng(seed).normal(size=(networks, tokens, 64))
    return X @ X.swapaxes(1, 2) / 64


def case(layer: Architecture, networks: int, coordinates: int, K: np.ndarray, seed: int, known: bool = True) -> dict:
    """One fit of outputs with their layer's description, its scales unknown, and with its kernel if that is known."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "outputs.npz", Path(folder) / "fit.nc"
        arrays = record.arrays_of(layer) | ({"kernel": K} if known else {})
        np.savez(data, outputs=drawn(layer, K, networks, coordinates, seed), **arrays)
        model = [] if layer.head_dim is None else ["--model", "finite_head_dim"]
        start = time.perf_counter()
        ended = subprocess.run([HIERATTN, "fit", data, "--out", out, "--json", *model], capture_output=True, text=True)
        took = time.perf_counter() - start
        told = json.loads(ended.stdout)
    q, o = told["parameters"]["score_scale"], told["parameters"]["value_scale"]
    numbers = {
        "took": took,
        "method": told["method"],
        "verdict": told["verdict"],
        "codes": [x["code"] for x in told["reasons"]],
    }
    for name, each in (("score_scale", q), ("value_scale", o)):
        numbers |= {name: each["mean"], f"{name}_sd": each["sd"]}
    passed = told["verdict"] == "CONVERGED" and told["method"] == "networkwise" and took < LIMIT
    return {"passed": passed and "budget" not in numbers["codes"], **numbers, "ess_bulk": min(q["ess_bulk"], o["ess_bulk"])}


def sharp(heads: int = 1) -> Architecture:
    """score_scale 4."""
    return Architecture(heads=heads, sigma_q=4.0)


NARROW = {n_H: Architecture(heads=4, head_dim=n_H) for n_H in (16, 32, 64)}
TURNED = Architecture(heads=2, mask="causal", rotary=rotary_frequencies(8))
DESIGNS = {
    "(150, 4, 1, 64), score_scale 4": (sharp(), 150, 64, np.eye(4)),
    "(50, 4, 1, 16), score_scale 4": (sharp(), 50, 16, np.eye(4)),
    "(100, 8, 1, 64), score_scale 4": (sharp(), 100, 64, np.eye(8)),
    "(300, 4, 1, 8), score_scale 4": (sharp(), 300, 8, np.eye(4)),
    "(40, 6, 1, 256), score_scale 4": (sharp(), 40, 256, np.eye(6)),
    "(100, 8, 4, 64), head_dim 16": (NARROW[16], 100, 64, np.eye(8)),
    "(100, 8, 4, 64), head_dim 64": (NARROW[64], 100, 64, np.eye(8)),
    "(200, 12, 4, 128), head_dim 32": (NARROW[32], 200, 128, kernels.rbf(12, 1.0)),
    "(200, 12, 4, 128), head_dim 32, a kernel each": (NARROW[32], 200, 128, own_kernels(200, 12)),
    "(200, 12, 4, 128)": (Architecture(heads=4), 200, 128, kernels.rbf(12, 1.0)),
    "(50, 6, 2, 32), a kernel each": (Architecture(heads=2), 50, 32, own_kernels(50, 6)),
    "(50, 6, 2, 32), causal, rotary": (TURNED, 50, 32, kernels.rbf(6, 1.0)),
}
UNKNOWN = {
    "(100, 4, 2, 64), kernel unknown": (Architecture(heads=2), 100, 64, kernels.rbf(4, 1.0)),
    "(100, 8, 4, 256), kernel unknown": (Architecture(heads=4), 100, 256, kernels.rbf(8, 1.0)),
}
CASES = {f"{name}, seed {seed}": partial(case, *design, seed) for seed in range(SEEDS) for name, design in DESIGNS.items()}
CASES |= {
    f"{name}, seed {seed}": partial(case, *design, seed, known=False)
    for seed in range(SEEDS)
    for name, design in UNKNOWN.items()
}
