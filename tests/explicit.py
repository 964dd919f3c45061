"""A layer drawn weight by weight in NumPy, for inputs whose Gram matrix is exactly K: an independent route to the law.

With X X' / n = K the law at finite head_dim is exact at any width n, because Gaussian weights see X only through X X'.
"""

import numpy as np


def inputs(L, width):
    """X (tokens, width) with X X' / width = L L'."""
    return np.sqrt(width) * np.pad(L, ((0, 0), (0, width - L.shape[1])))


def draw_inputs(rng, width, tokens, phi, networks):
    """X (network, 1, token, width) of the paper's random inputs: phi(W_i h), a matrix W_i for every token."""
    h, W = rng.normal(size=(networks, 1, width, 1)), rng.normal(size=(networks, tokens, width, width)) / np.sqrt(width)
    return phi((W @ h)[:, None, :, :, 0])


def draw(rng, layer, X, X_q=None, networks=1, coordinates=1):
    """Outputs (network, token, coordinate) and scores (network, head, query, key) of explicit networks."""
    X_q = X if X_q is None else X_q
    n, n_H, H, G = X.shape[-1], layer.head_dim, layer.heads, layer.groups

    def weights(scale, heads, fan_in, fan_out):
        scale = np.broadcast_to(scale, (H,))[:: H // heads]
        return rng.normal(size=(networks, heads, fan_in, fan_out)) * scale[:, None, None] / np.sqrt(fan_in)

    queries = X_q @ weights(layer.sigma_q, H, n, n_H)
    keys = np.repeat(X @ weights(layer.sigma_k, G, n, n_H), H // G, axis=1)
    values = np.repeat(X @ weights(layer.sigma_v, G, n, n_H), H // G, axis=1)
    if layer.rotary is not None:
        queries, keys = turn(queries, layer.rotary), turn(keys, layer.rotary)
    p = queries @ keys.swapaxes(-1, -2) / (np.sqrt(n_H) if layer.scaling == "sqrt" else n_H)
    logits = p + (0 if layer.bias is None else layer.bias)
    allowed = layer.allowed(*p.shape[-2:])
    if layer.score_function == "identity":
        A = np.where(allowed, logits, 0)
    else:
        A = np.where(allowed, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0)
        A /= A.sum(axis=-1, keepdims=True)
    y = (A @ values @ weights(layer.sigma_o, H, n_H, coordinates)).sum(axis=1) / np.sqrt(H)
    return y, p


def turn(x, frequencies):
    """Rotary embeddings as complex numbers."""
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * np.arange(x.shape[-2])[:, None] * frequencies)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
