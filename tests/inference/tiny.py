"""Fits with settings so small that they cost little but compilation; as a program, one that is killed on its way.

python -m tests.inference.tiny OUT MODEL CHUNKS: killed by SIGKILL when so many chunks are computed, the last one not yet saved.
A run that was killed before goes on.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import numpy as np

from hierattn import Architecture, Observations, kernels
from hierattn.inference import fitting
from hierattn.inference.methods import networkwise, nuts

CONSTANTS = {
    (networkwise, "WARM_UP"): 2,
    (networkwise, "CHECK_EVERY"): 1,
    (fitting, "MOST_SWEEPS"): 100,
    (nuts, "WARM_UP"): 1,
    (nuts, "CHUNK"): 10,
    (fitting, "MOST_DRAWS"): 20,
}
LAYER, K = Architecture(heads=2), kernels.equicorrelated(3, 0.3)
NETWORKS, COORDINATES = 4, 8


def outputs(seed: int = 0) -> np.ndarray:
    """Of a law that is nearly the right one: networks with covariances of their own."""
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.ones(3), size=(NETWORKS, 2, 3))
    Sigma = np.einsum("mhij,jk,mhlk->mil", A, K, A) / 2
    return np.linalg.cholesky(Sigma) @ rng.normal(size=(NETWORKS, 3, COORDINATES))


def observations(**changes: object) -> Observations:
    """Those outputs, with their kernel and number of heads."""
    return Observations(outputs(), **{"kernel": K, "heads": 2} | changes)


def main(out: str, model: str, chunks: str) -> None:
    """Fit until killed."""
    for (module, name), value in CONSTANTS.items():
        setattr(module, name, value)
    done = count(1)

    def advance(_: int) -> None:
        if next(done) == int(chunks):
            os.kill(os.getpid(), signal.SIGKILL)

    fitting.fit(observations(), model, chains=2, seed=5, out=out, advance=advance, resume=Path(f"{out}.resume").exists())


if __name__ == "__main__":
    main(*sys.argv[1:])
