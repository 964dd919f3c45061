"""Networks of the law drawn by its definition, in NumPy: no code of the package and nothing to compile."""

import numpy as np
from scipy.special import softmax

from hierattn import Observations, kernels


def outputs(layer, K, networks, coordinates, seed=0):
    """Outputs (network, token, coordinate) of heads without rotary embeddings that share nothing."""
    rng, s, H, n_H = np.random.default_rng(seed), len(K), layer.heads, layer.head_dim
    L = kernels.factor(K)
    r = L.shape[1]
    if n_H is None:
        p = L @ rng.normal(size=(networks, H, r, r)) @ L.T
        values = L @ rng.normal(size=(coordinates, networks, H, r, 1))
    else:
        queries, keys, V = (L @ rng.normal(size=(networks, H, r, n_H)) for _ in range(3))
        p = queries @ keys.swapaxes(-1, -2) / np.sqrt(n_H)
        values = V @ rng.normal(size=(coordinates, networks, H, n_H, 1)) / np.sqrt(n_H)
    p = layer.score_scale[:, None, None] * p + (0 if layer.bias is None else layer.bias)
    A = softmax(np.where(layer.allowed(s, s), p, -np.inf), axis=-1)
    y = np.sum(layer.value_scale[:, None, None] * (A @ values), axis=2)[..., 0] / np.sqrt(H)
    return np.moveaxis(y, 0, -1)


def observe(layer, K, networks, coordinates, tokens=None, seed=0, scale=1.0):
    """The same as observations."""
    tokens = list(range(len(K))) if tokens is None else tokens
    y = scale * outputs(layer, K, networks, coordinates, seed)[:, tokens]
    return Observations(y, K, tokens=tokens, heads=layer.heads)
