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
    logits, allowed = p if layer.cap is None else layer.cap * np.tanh(p / layer.cap), seen(layer, *p.shape[-2:])
    logits = logits + (0 if layer.bias is None else layer.bias)
    if layer.score_function in ("softmax", "shaped"):
        A = np.where(allowed, np.exp(logits), 0)
        sink = 0 if layer.sink is None else np.exp(np.broadcast_to(layer.sink, (layer.heads,)))[:, None, None]
        A = A / (A.sum(axis=-1, keepdims=True) + sink)
        plain = np.eye(len(allowed)) - allowed / allowed.sum(axis=1, keepdims=True) if layer.score_function == "shaped" else 0
        return A + plain
    functions = {"identity": lambda x: x, "sigmoid": _sigmoid, "relu": lambda x: x * (x > 0)}
    return np.where(allowed, functions[layer.score_function](logits), 0)


def seen(layer, s_q, s_k):
    """May query i look at key j, pair by pair."""
    mask = np.tri(s_q) if isinstance(layer.mask, str) else np.ones((s_q, s_k)) if layer.mask is None else layer.mask
    near = [[layer.window is None or abs(i - j) < layer.window for j in range(s_k)] for i in range(s_q)]
    same = [[layer.chunk is None or i // layer.chunk == j // layer.chunk for j in range(s_k)] for i in range(s_q)]
    return np.array(mask, bool) & near & same


def _sigmoid(logits):
    return 1 / (1 + logits.shape[-1] * np.exp(-logits))


def normed(layer, x):
    """Queries, or keys, (network, head, token, coordinate) as Hugging Face and Flax norm them; without their gain."""
    if layer.qk_norm is None:
        return x
    if layer.qk_norm == "rms_all":
        joined = np.moveaxis(x, 1, 2).reshape(len(x), x.shape[2], -1)
        length = np.sqrt(np.mean(joined**2, axis=-1) + layer.qk_eps)[:, None, :, None]
    else:
        x = x - (x.mean(axis=-1, keepdims=True) if layer.qk_norm == "layer" else 0)
        length = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + layer.qk_eps)
    return x / length


def sinks(rng, layer, networks):
    """What networks add to their sinks."""
    scale = np.broadcast_to(0 if layer.sink_scale is None else layer.sink_scale, (layer.heads,))
    return scale[:, None, None] * rng.normal(size=(networks, layer.heads, 1, 1))


def attended(rng, layer, X, X_q=None, networks=1):
    """Attention times values A_a V_a (network, head, token, n_H), and scores, of explicit networks up to W^O."""
    X_q = X if X_q is None else X_q
    n, n_H, H, G = X.shape[-1], layer.head_dim, layer.heads, layer.groups
    queries = X_q @ weights(rng, layer.sigma_q, H, H, (networks, n, n_H))
    keys = X @ weights(rng, layer.sigma_k, H, G, (networks, n, n_H))
    queries, keys = normed(layer, queries), np.repeat(normed(layer, keys), H // G, axis=1)
    values = np.repeat(X @ weights(rng, layer.sigma_v, H, G, (networks, n, n_H)), H // G, axis=1)
    if layer.rotary is not None:
        queries, keys = turn(queries, layer.rotary), turn(keys, layer.rotary)
    p = queries @ keys.swapaxes(-1, -2) / (np.sqrt(n_H) if layer.scaling == "sqrt" else n_H)
    if layer.qk_norm is not None:
        p = p * np.broadcast_to(layer.qk_gain, (H,))[:, None, None]
    p = p - sinks(rng, layer, networks)  # a sink that is higher is as good as scores that are lower
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
    S_q, S_k, scale = K_q, K, np.multiply(layer.sigma_q, layer.sigma_k)
    if layer.qk_norm is not None:
        lengths = (np.sqrt(s**2 * np.diag(C) + layer.qk_eps) / s for s, C in ((layer.sigma_q, K_q), (layer.sigma_k, K)))
        (S_q, S_k), scale = (C / np.outer(x, x) for C, x in zip((K_q, K), lengths, strict=True)), layer.qk_gain
    C = np.multiply.outer(S_q, S_k).transpose(0, 2, 1, 3)  # i, j, i', j'
    if layer.rotary is not None:
        apart = np.subtract.outer(np.arange(k), np.arange(q)).T  # j - i
        C = C * np.cos(np.multiply.outer(np.subtract.outer(apart, apart), layer.rotary)).mean(axis=-1)
    values, vectors = np.linalg.eigh(C.reshape(q * k, q * k))
    root = vectors * np.sqrt(values.clip(0))
    scale = np.broadcast_to(scale, (H,)) * (layer.scaling == "sqrt")
    p = scale[:, None, None] * (rng.normal(size=(networks, H, q * k)) @ root.T).reshape(networks, H, q, k)
    p = p - sinks(rng, layer, networks)
    A = attention(layer, p) * np.broadcast_to(np.multiply(layer.sigma_v, layer.sigma_o), (H,))[:, None, None]
    return np.einsum("mhij,jk,mhlk->mil", A, K, A, optimize=True) / H


def turn(x, frequencies):
    """Rotary embeddings as complex numbers."""
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * np.arange(x.shape[-2])[:, None] * frequencies)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
