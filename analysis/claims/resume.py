"""A fit killed at random and resumed ends with the draws of one that was not: 20 kills, by both sampling routes."""

import random
import signal
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
USES = tuple(f"hierattn/inference/{name}.py" for name in ("checkpoints", "networkwise", "nuts", "fitting", "likelihood"))
HIERATTN = Path(sys.executable).parent / "hierattn"


def write_outputs(path: Path) -> None:
    """Outputs of 20 networks of the law."""
    y = Law(Architecture(heads=2), np.eye(3)).sample(jax.random.key(SEED), 20, 8)
    np.savez(path, outputs=np.asarray(y), kernel=np.eye(3), heads=2)


def posterior(path: Path) -> dict[str, np.ndarray]:
    """Draws of the parameters in a finished file."""
    import arviz

    with arviz.from_netcdf(path) as tree:
        return {name: tree["posterior"][name].values for name in ("score_scale", "value_scale")}


def killed(method: str, kills: int) -> dict:
    """Kill a fit, again and again, at random times after its first checkpoint; let the last go on to the end."""
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        data, out, whole = (Path(folder) / name for name in ("outputs.npz", "fit.nc", "whole.nc"))
        write_outputs(data)
        command = [HIERATTN, "fit", data, "--method", method, "--seed", "1"]
        start = time.perf_counter()
        subprocess.run([*command, "--out", whole], check=True, capture_output=True)
        alone, done, chunks = time.perf_counter() - start, 0, []
        for _ in range(kills):
            resume = ["--resume"] if (Path(f"{out}.resume") / "settings.json").exists() else []
            process = subprocess.Popen([*command, "--out", out, *resume], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=chance.uniform(0.1, 0.9) * alone)
                break  # it finished before it could be killed
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                chunks.append(len(list(Path(f"{out}.resume").glob("draws_*.npz"))))
        if not out.exists():
            subprocess.run([*command, "--out", out, "--resume"], check=True, capture_output=True)
        first, second = posterior(whole), posterior(out)
        same = all(np.array_equal(first[name], second[name]) for name in first)
        return {"passed": same, "kills": done, "chunks_on_disk_at_kills": chunks, "draws": int(first["score_scale"].size)}


CASES = {f"{method}, {kills} kills": partial(killed, method, kills) for method, kills in (("networkwise", 14), ("nuts", 6))}
