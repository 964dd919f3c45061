"""One token, seen through the coordinates of many networks: which it is, and numbers that all comparisons have."""

import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer.architecture import Architecture

TAILS = {"99": 0.01, "999": 1e-3, "9999": 1e-4}
MEAN_ABSOLUTE = np.sqrt(2 / np.pi)  # E|z| of a standard normal: what a sum of absolute errors shows of noise


def tokens_that_see_most(layer: Architecture, shape: tuple[int, int]) -> list[int]:
    """All tokens, those that see most keys first; in order without a mask."""
    seen = np.asarray(layer.allowed(*shape)).sum(axis=1)
    return [int(token) for token in np.argsort(-seen, kind="stable")]


def chosen(token: int | None, layer: Architecture, shape: tuple[int, int]) -> int:
    """The token asked for; by default the first of those that see most keys (the first token of a causal mask sees itself)."""
    if token is None:
        return tokens_that_see_most(layer, shape)[0]
    if not isinstance(token, (int, np.integer)) or isinstance(token, bool) or not 0 <= token < shape[0]:
        raise unusable("token", f"a whole number from 0 to {shape[0] - 1}", token)
    return int(token)


def square_correlation(y: np.ndarray) -> float:
    """Corr(y_a^2, y_b^2) of two coordinates of a network: the mean over tokens of y (network, token, coordinate)."""
    square, C = y**2 - (y**2).mean(axis=(0, 2), keepdims=True), y.shape[2]
    across = (square.sum(axis=2) ** 2 - (square**2).sum(axis=2)).mean(axis=0) / (C * (C - 1))
    return float(np.mean(across / (square**2).mean(axis=(0, 2))))


def square_correlation_of(excess_kurtosis: float) -> float:
    """The same under the law, from the excess kurtosis of one token (THEORY section 4)."""
    return float(excess_kurtosis / 3 / (2 + excess_kurtosis))
