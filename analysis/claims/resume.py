"""A fit killed at random and resumed ends with the draws of one that was not: 20 kills by both sampling routes, and 12 more
where the first of them has states of its own: one head, a finite head dimension, an unknown kernel."""

import math
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
from hierattn.inference.methods import networkwise, nuts

SEED = 0
HIERATTN = Path(sys.executable).parent / "hierattn"
KILLS_OF_A_FIT = 4


def write_outputs(path: Path, heads: int, kernel: bool) -> None:
    """Outputs of 20 networks of the law, with their kernel or without."""
    y = Law(Architecture(heads=heads), np.eye(3)).sample(jax.random.key(SEED), 20, 8)
    np.savez(path, outputs=np.asarray(y), heads=heads, **({"kernel": np.eye(3)} if kernel else {}))


def posterior(path: Path) -> dict[str, np.ndarray]:
    """Draws of the parameters in a finished file."""
    import arviz

    with arviz.from_netcdf(path) as tree:
        return {name: tree["posterior"][name].values for name in ("score_scale", "value_scale")}


def killed(
    method: str, warm_up: int, chunk: int, kills: int, heads: int = 2, kernel: bool = True, options: tuple[str, ...] = ()
) -> dict:
    """Fits killed at random chunks, some moments after they begin, KILLS_OF_A_FIT times each; then they may end."""
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        data, out, whole = (Path(folder) / name for name in ("outputs.npz", "fit.nc", "whole.nc"))
        write_outputs(data, heads, kernel)
        command, unfinished = [HIERATTN, "fit", data, "--method", method, "--seed", "1", *options], Path(f"{out}.resume")
        subprocess.run([*command, "--out", whole], check=True, capture_output=True)
        known, found, same = posterior(whole), [], []
        total = warm_up + known["score_scale"].shape[1] // chunk

        def on_disk() -> int:
            return len(list(unfinished.glob("draws_*.npz")))

        def go_on(until: float) -> bool:
            """Begin a fit or resume it, and kill it soon after so many chunks; did it end before?"""
            resume = ["--resume"] if (unfinished / "settings.json").exists() else []
            process = subprocess.Popen([*command, "--out", out, *resume], stdout=subprocess.DEVNULL)
            while process.poll() is None:
                if on_disk() >= until:
                    time.sleep(chance.uniform(0, 0.2))
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    return False
                time.sleep(0.005)
            if process.returncode:
                raise RuntimeError(f"hierattn fit ended with exit code {process.returncode}")
            return True

        while len(found) < kills:
            moments = [*sorted(chance.sample(range(total + 1), min(KILLS_OF_A_FIT, kills - len(found)))), math.inf]
            while not go_on(moments.pop(0)):
                found.append(on_disk())
            same.append(all(np.array_equal(known[name], draws) for name, draws in posterior(out).items()))
            out.unlink()
        numbers = {"kills": len(found), "fits": len(same), "chunks": total, "chunks_on_disk_at_kills": found}
        return {"passed": all(same), **numbers}


NETWORKWISE = ("networkwise", networkwise.WARM_UP, networkwise.RECORDS * networkwise.SIGMA_EVERY)
CASES = {
    "networkwise, 14 kills": partial(killed, *NETWORKWISE, 14),
    "nuts, 6 kills": partial(killed, "nuts", nuts.WARM_UP, nuts.CHUNK, 6),
    "one head, 4 kills": partial(killed, *NETWORKWISE, 4, heads=1),
    "finite head_dim, 4 kills": partial(killed, *NETWORKWISE, 4, options=("--model", "finite_head_dim", "--head-dim", "4")),
    "unknown kernel, 4 kills": partial(killed, *NETWORKWISE, 4, kernel=False),
}
