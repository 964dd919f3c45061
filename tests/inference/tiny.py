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
from hierattn.inference.fitting import fit
from hierattn.inference.methods.marginal import Marginal
from hierattn.inference.methods.moments import Moments
from hierattn.inference.methods.networkwise import Networkwise
from hierattn.inference.methods.nuts import Nuts

NETWORKWISE = Networkwise(warm_up=1, check_every=1, most_draws=100)
NUTS = Nuts(warm_up=1, chunk=10, most_draws=20)
METHODS = (Marginal(), Moments(), NETWORKWISE, NUTS)  # what auto asks, but small
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
    done = count(1)

    def advance(_: int) -> None:
        if next(done) == int(chunks):
            os.kill(os.getpid(), signal.SIGKILL)

    resume = Path(f"{out}.resume").exists()
    fit(observations(), model, method=METHODS, chains=2, seed=5, out=out, advance=advance, resume=resume)


if __name__ == "__main__":
    main(*sys.argv[1:])
