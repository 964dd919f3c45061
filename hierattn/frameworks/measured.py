"""What is added up over networks while they are watched: moments of weights and biases, sinks, kernels of inputs."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.frameworks.runs import Run

SIGMAS = 5.0  # standard errors within which measured weights are those of an initialiser


class Variance(NamedTuple):
    """The variance of a map's entries: of its initialiser, if that is known and the weights agree, or measured."""

    value: float
    error: float
    origin: str


class Tally:
    """Second and fourth moments of weights and biases, added up over networks; and sinks."""

    def __init__(self) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self.sinks: list[np.ndarray] = []

    def add(self, run: Run) -> None:
        """One more network."""
        for name, (W, b) in run.maps.items():
            self._add(name, W)
            self._add(f"b_{name}", b)
        self._add("sink", run.sinks)
        if run.sinks is not None:
            self.sinks.append(run.sinks.astype(float))

    def _add(self, key: str, x: Any) -> None:
        if x is not None:
            square = x.astype(float).ravel()
            square *= square
            self.sums[key] = self.sums.get(key, 0) + np.array([square.size, square.sum(), square @ square])

    def variance(self, name: str, initialisers: tuple[float, ...] = ()) -> Variance:
        """About zero, where initialisers put the mean; a bias that is not there, or zero, has variance 0."""
        count, second, fourth = self.sums.get(name, np.zeros(3))
        if second == 0:
            return Variance(0.0, 0.0, "none")
        mean = second / count
        error = float(np.sqrt(max(fourth / count - mean**2, 0) / count))
        for known in initialisers:
            if abs(mean - known) <= SIGMAS * error:
                return Variance(known, 0.0, "initialiser")
        return Variance(float(mean), error, "measured")

    def sink(self, initialisers: tuple[float, ...] = ()) -> tuple[dict[str, Any], Variance]:
        """The fields sink and sink_scale of a layer, and how sinks vary.

        Those of one network, or the same in all, are fixed. Others are of an initialiser, about zero, or else of one mean and
        variance over networks and heads.
        """
        if not self.sinks:
            return {}, Variance(0.0, 0.0, "none")
        sinks, found = np.array(self.sinks), self.variance("sink", initialisers)
        if np.array_equal(sinks, np.broadcast_to(sinks[0], sinks.shape)):
            return {"sink": sinks[0]}, Variance(0.0, 0.0, "none")
        if found.origin == "initialiser":
            return {"sink": 0.0, "sink_scale": found.value**0.5}, found
        square = (sinks - sinks.mean()) ** 2
        found = Variance(float(square.mean()), float(square.std() / square.size**0.5), "measured")
        return {"sink": float(sinks.mean()), "sink_scale": found.value**0.5}, found


class Grams:
    """X X' / n of queries and of keys, over all tokens of all sequences, network after network."""

    def __init__(self) -> None:
        self._queries: list[np.ndarray] = []
        self._keys: list[np.ndarray] = []

    def add(self, X_q: np.ndarray, X: np.ndarray) -> None:
        """One more network."""
        self._keys.append(_gram(X))
        if X_q is not X:
            self._queries.append(_gram(X_q))

    @property
    def keys(self) -> Float[np.ndarray, "network k k"]:
        """Of keys and values: one for all networks if their inputs are the same."""
        return _shared(self._keys)

    @property
    def queries(self) -> Float[np.ndarray, "network q q"]:
        """Of the queries, with as many networks as the keys have."""
        if not self._queries:
            return self.keys
        queries, keys = _shared(self._queries), self.keys
        return np.repeat(queries, len(keys), axis=0) if len(queries) == 1 else queries


def _gram(X: np.ndarray) -> np.ndarray:
    X = X.reshape(-1, X.shape[-1]).astype(float)
    return X @ X.T / X.shape[-1]


def _shared(grams: list[np.ndarray]) -> np.ndarray:
    same = all(np.array_equal(grams[0], G) for G in grams)
    return np.stack(grams[:1] if same else grams)
