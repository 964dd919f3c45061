"""Time to CONVERGED of `hierattn fit`, the whole command with compilation, predictions and likelihoods, four chains: designs
(networks, tokens, heads, coordinates), those of one head with nearly singular covariances."""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

from hierattn import Architecture, Law

SEED = 0
HIERATTN = Path(sys.executable).parent / "hierattn"


def case(
    networks: int,
    tokens: int,
    heads: int,
    coordinates: int,
    goal: float,
    one_token: bool = False,
    score_scale: float = 1.0,
    seed: int = SEED,
) -> dict:
    """One design."""
    with tempfile.TemporaryDirectory() as folder:
        law = Law(Architecture(heads=heads, sigma_q=score_scale), np.eye(tokens))
        y = np.asarray(law.sample(jax.random.key(seed), networks, coordinates))
        data, out = Path(folder) / "outputs.npz", Path(folder) / "fit.nc"
        np.savez(data, outputs=y[:, :1] if one_token else y, kernel=np.eye(tokens), heads=heads)
        command = [HIERATTN, "fit", data, "--out", out, "--json", *(["--tokens", "0"] if one_token else [])]
        start = time.perf_counter()
        found = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - start
        record = json.loads(found.stdout)
    q, o = record["parameters"]["score_scale"], record["parameters"]["value_scale"]
    numbers = {"took": took, "goal": goal, "method": record["method"], "verdict": record["verdict"]}
    numbers |= {"score_scale": q["mean"], "score_scale_sd": q["sd"], "value_scale": o["mean"], "value_scale_sd": o["sd"]}
    return {
        "passed": record["verdict"] == "CONVERGED" and took < goal,
        **numbers,
        "ess_bulk": min(q["ess_bulk"], o["ess_bulk"]),
    }


CASES = {
    "(50, 4, 2, 16)": partial(case, 50, 4, 2, 16, 60),
    "(50, 4, 2, 256)": partial(case, 50, 4, 2, 256, 60),
    "(50, 4, 2, 4096)": partial(case, 50, 4, 2, 4096, 60),
    "(50000, 4, 1, 1), one token": partial(case, 50_000, 4, 1, 1, 30, True),
    "(100, 8, 4, 64)": partial(case, 100, 8, 4, 64, 120),
}
ONE_HEAD = [(150, 4, 1, 64), (50, 4, 1, 16), (100, 8, 1, 64), (300, 4, 1, 8), (40, 6, 1, 256)]
CASES |= {
    f"{design}, score_scale {score_scale}": partial(case, *design, 120, score_scale=score_scale)
    for score_scale in (0.5, 1.6)
    for design in ONE_HEAD
}
