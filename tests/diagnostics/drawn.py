"""Outputs whose origin is known, in NumPy: no code of the package but kernels."""

import numpy as np
from scipy.special import softmax

from hierattn import Architecture, kernels

SCORE_SCALE, KURTOSIS = 1.6, 0.347256  # of one token, K = I, s = 4, H = 1
VARIANCE = 0.5102744578
LAYER = Architecture(sigma_q=SCORE_SCALE)


def law(seed=0, networks=150, coordinates=16, K=None, layer=LAYER):
    """Outputs (network, token, coordinate) of heads of infinite dimension, by the law's definition."""
    rng, L = np.random.default_rng(seed), kernels.factor(np.eye(4) if K is None else K)
    (s, r), H = L.shape, layer.heads
    p = layer.score_scale[:, None, None] * (L @ rng.normal(size=(networks, H, r, r)) @ L.T)
    A = softmax(np.where(layer.allowed(s, s), p, -np.inf), axis=-1)
    F = layer.value_scale[:, None, None] * (A @ L) / np.sqrt(H)
    return np.sum([F[:, a] @ rng.normal(size=(networks, r, coordinates)) for a in range(H)], axis=0)


def covariance():
    """Of the law over tokens: keys are independent, and a row's mean square is known (test_testing.py)."""
    return np.full((4, 4), 0.25) + (VARIANCE - 0.25) * np.eye(4)


def gaussian(seed=0, networks=150, coordinates=16):
    return np.linalg.cholesky(covariance()) @ np.random.default_rng(seed).normal(size=(networks, 4, coordinates))


def student(seed=0, networks=150, coordinates=16):
    nu = 4 + 6 / KURTOSIS
    t = np.random.default_rng(seed).standard_t(nu, size=(networks, 4, coordinates))
    return np.sqrt(covariance()[0, 0] * (nu - 2) / nu) * t


def own_scores(seed=0, networks=150, coordinates=16):
    y = law(seed, networks * coordinates, 1)
    return np.moveaxis(y.reshape(networks, coordinates, 4), 1, 2)


def normalised(seed=0):
    y = law(seed)
    return y / np.sqrt((y**2).mean(axis=-1, keepdims=True))
