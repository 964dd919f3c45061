"""Where chains begin: sweeps with ever more of the data, and for each network the scores that explain it better.

Covariances that are nearly singular hold scores in narrow places with walls between them. As if there were few coordinates
these places are wide. While data are let in, in a few steps, every network's scores are drawn anew from those of all chains,
with weights as sequential Monte Carlo has them, p(S | scores)^(change of the share): scores that are caught behind a wall die
out. It ends before the first draw that is kept.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from hierattn.inference.likelihood import Data
from hierattn.inference.methods.sweeps.state import State

STEPS = 5  # chunks of sweeps until all data count, if there are as many before the last of a warm-up


@dataclass(frozen=True)
class Tempering:
    """Of a warm-up of so many chunks of sweeps: half of the data in the chunk before all of them, a quarter before that, ..."""

    warm_up: int

    def share(self, chunk: int) -> float:
        """Of the data that count in a chunk."""
        return 0.5 ** max(0, min(STEPS, self.warm_up - 1) - chunk)

    def data(self, data: Data, chunk: int) -> Data:
        """As if there were fewer coordinates."""
        return replace(data, S=data.S * self.share(chunk), n=data.n * self.share(chunk))

    def exchanged(
        self, data: Data, states: State, Sigma: Float[np.ndarray, "chain t t network"], chunk: int, seed: int
    ) -> State:
        """Scores of every network from chains that explain it better, with their steps; Sigma: at the end of a chunk."""
        change = self.share(chunk + 1) - self.share(chunk)
        if change == 0:
            return states
        which = ancestors(change * log_likelihoods(data, Sigma), np.random.default_rng([seed, chunk]))
        networks = np.arange(which.shape[1])

        def of(x: Any) -> Any:
            return np.moveaxis(np.moveaxis(np.asarray(x), -1, 1)[which, networks], 1, -1)

        return states._replace(E=jax.tree.map(of, states.E), log_step=of(states.log_step), square=of(states.square))


def log_likelihoods(data: Data, Sigma: Float[np.ndarray, "chain t t network"]) -> Float[np.ndarray, "chain network"]:
    """Of every network up to a constant; -inf where Sigma is singular."""
    covariances, S = np.moveaxis(np.asarray(Sigma), -1, 1), np.moveaxis(np.asarray(data.S), -1, 0)
    values, vectors = np.linalg.eigh(covariances)
    along = np.einsum("cmji,mjk,cmki->cmi", vectors, S, vectors)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = -float(data.n) / 2 * np.sum(np.log(values), axis=-1) - np.sum(along / values, axis=-1) / 2
    return np.where(np.isfinite(found), found, -np.inf)


def ancestors(log_weights: Float[np.ndarray, "chain network"], rng: np.random.Generator) -> Int[np.ndarray, "chain network"]:
    """Whose scores each chain takes: its own where they can be kept, else others' by weight (one uniform for each)."""
    chains = len(log_weights)
    w = np.exp(log_weights - np.maximum(log_weights.max(axis=0), -1e300))
    w = np.where(w.sum(axis=0) > 0, w, 1.0)
    kept = rng.random(w.shape) < w / w.max(axis=0)
    drawn = np.sum(np.cumsum(w, axis=0)[:, None] < rng.random(w.shape) * w.sum(axis=0), axis=0)
    return np.where(kept, np.arange(chains)[:, None], np.minimum(drawn, chains - 1))
