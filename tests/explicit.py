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


def attention(layer, p):
    """Weights of scores, written out for every score function: nothing is shared with the package."""
    logits, allowed = p + (0 if layer.bias is None else layer.bias), layer.allowed(*p.shape[-2:])
    if layer.score_function == "softmax":
        A = np.where(allowed, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0)
        return A / A.sum(axis=-1, keepdims=True)
    return np.where(allowed, {"identity": lambda x: x, "sigmoid": _sigmoid}[layer.score_function](logits), 0)


def _sigmoid(logits):
    return 1 / (1 + logits.shape[-1] * np.exp(-logits))


def attended(rng, layer, X, X_q=None, networks=1):
    """Attention times values A_a V_a (network, head, token, n_H), and scores, of explicit networks up to W^O."""
    X_q = X if X_q is None else X_q
    n, n_H, H, G = X.shape[-1], layer.head_dim, layer.heads, layer.groups
    queries = X_q @ weights(rng, layer.sigma_q, H, H, (networks, n, n_H))
    keys = np.repeat(X @ weights(rng, layer.sigma_k, H, G, (networks, n, n_H)), H // G, axis=1)
    values = np.repeat(X @ weights(rng, layer.sigma_v, H, G, (networks, n, n_H)), H // G, axis=1)
    if layer.rotary is not None:
        queries, keys = turn(queries, layer.rotary), turn(keys, layer.rotary)
    p = queries @ keys.swapaxes(-1, -2) / (np.sqrt(n_H) if layer.scaling == "sqrt" else n_H)
    return attention(layer, p) @ values, p


def weights(rng, scale, H, heads, shape):
    """Matrices (network, head, fan_in, fan_out) with entries N(0, scale^2 / fan_in), one for each of `heads` groups of H."""
    networks, fan_in, fan_out = shape
    scale = np.broadcast_to(scale, (H,))[:: H // heads]
    return rng.normal(size=(networks, heads, fan_in, fan_out)) * scale[:, None, None] / np.sqrt(fan_in)


def draw(rng, layer, X, X_q=None, networks=1, coordinates=1):
    """Outputs (network, token, coordinate) and scores (network, head, query, key) of explicit networks."""
    B, p = attended(rng, layer, X, X_q, networks)
    W = weights(rng, layer.sigma_o, layer.heads, layer.heads, (networks, layer.head_dim, coordinates))
    return (B @ W).sum(axis=1) / np.sqrt(layer.heads), p


def covariances(rng, layer, X, X_q=None, networks=1):
    """Conditional covariances Sigma (network, token, token) given all weights but W^O, at finite head_dim."""
    B, _ = attended(rng, layer, X, X_q, networks)
    B = B * np.broadcast_to(layer.sigma_o, (layer.heads,))[:, None, None]
    return np.einsum("mhin,mhjn->mij", B, B) / (layer.heads * layer.head_dim)


def limit_covariances(rng, layer, K, K_q=None, networks=1):
    """The same at infinite head_dim, by the definition: a dense Gaussian of all scores of a head (THEORY sections 2 and 7)."""
    K_q = K if K_q is None else K_q
    q, k, H = len(K_q), len(K), layer.heads
    C = np.multiply.outer(K_q, K).transpose(0, 2, 1, 3)  # i, j, i', j'
    if layer.rotary is not None:
        apart = np.subtract.outer(np.arange(k), np.arange(q)).T  # j - i
        C = C * np.cos(np.multiply.outer(np.subtract.outer(apart, apart), layer.rotary)).mean(axis=-1)
    values, vectors = np.linalg.eigh(C.reshape(q * k, q * k))
    root = vectors * np.sqrt(values.clip(0))
    scale = np.broadcast_to(np.multiply(layer.sigma_q, layer.sigma_k), (H,)) * (layer.scaling == "sqrt")
    p = scale[:, None, None] * (rng.normal(size=(networks, H, q * k)) @ root.T).reshape(networks, H, q, k)
    A = attention(layer, p) * np.broadcast_to(np.multiply(layer.sigma_v, layer.sigma_o), (H,))[:, None, None]
    return np.einsum("mhij,jk,mhlk->mil", A, K, A, optimize=True) / H


def turn(x, frequencies):
    """Rotary embeddings as complex numbers."""
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * np.arange(x.shape[-2])[:, None] * frequencies)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
