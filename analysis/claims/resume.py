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
    """Kill fits at random times; a fit that ends, killed or not, is compared with one that was left alone."""
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        data, out, whole = (Path(folder) / name for name in ("outputs.npz", "fit.nc", "whole.nc"))
        write_outputs(data)
        command, unfinished = [HIERATTN, "fit", data, "--method", method, "--seed", "1"], Path(f"{out}.resume")
        start = time.perf_counter()
        subprocess.run([*command, "--out", whole], check=True, capture_output=True)
        alone, chunks, same = time.perf_counter() - start, [], []

        def go_on(seconds: float | None) -> bool:
            """Begin a fit or resume it, and kill it after some time; did it end before?"""
            resume = ["--resume"] if (unfinished / "settings.json").exists() else []
            process = subprocess.Popen([*command, "--out", out, *resume], stdout=subprocess.DEVNULL)
            try:
                if process.wait(timeout=seconds):
                    raise RuntimeError(f"hierattn fit ended with exit code {process.returncode}")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return False
            return True

        while len(chunks) < kills or unfinished.exists():
            if not go_on(chance.uniform(0.1, 0.9) * alone if len(chunks) < kills else None):
                chunks.append(len(list(unfinished.glob("draws_*.npz"))))
                continue
            first, second = posterior(whole), posterior(out)
            same.append(all(np.array_equal(first[name], second[name]) for name in first))
            out.unlink()
        return {"passed": all(same), "kills": len(chunks), "fits": len(same), "chunks_on_disk_at_kills": chunks}


CASES = {f"{method}, {kills} kills": partial(killed, method, kills) for method, kills in (("networkwise", 14), ("nuts", 6))}
