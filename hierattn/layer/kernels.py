"""Input kernels K: what the law knows of a layer's inputs, K_ij = lim <x^i, x^j> / n.

Kernels are small NumPy arrays in float64; the law turns them into JAX arrays where it uses them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import UnsafeInputError, as_array, unusable
from hierattn.layer.activations import Activation, Function, lookup

Kernel = Float[np.ndarray, "*batch s s"]
LARGEST = 2**13  # tokens of a kernel made here


def from_inputs(X: Any) -> Kernel:
    """K = X X' / n from observed inputs X, (tokens, width) or (..., tokens, width)."""
    X = as_array("X", X, kind=None)
    if X.ndim < 2 or 0 in X.shape or X.dtype.kind not in "fiu":
        raise unusable("X", "real inputs of shape (tokens, width)", f"{X.dtype} of shape {X.shape}")
    if not np.all(np.isfinite(X)):
        raise unusable("X", "finite numbers", f"{np.sum(~np.isfinite(X))} NaN or infinite")
    X = X if X.dtype.kind == "f" and X.itemsize >= 4 else X.astype(float)
    return X @ X.swapaxes(-1, -2) / X.shape[-1]


def activation(phi: str | Activation | Function, tokens: int | None = None, preactivation: Any = None) -> Kernel:
    """K_ij = E[phi(h^i) phi(h^j)], h ~ N(0, preactivation); phi a name or any function of one coordinate.

    Without a preactivation kernel these are the paper's inputs, h^i = W^i h with a fresh matrix for every token: h ~ N(0, I)
    over `tokens` tokens, hence K_ii = E[phi(z)^2] and K_ij = E[phi(z)]^2.
    """
    if (tokens is None) == (preactivation is None):
        raise unusable("tokens", "either tokens or a preactivation kernel", "both or neither")
    C = check(np.eye(_positive("tokens", tokens)) if preactivation is None else preactivation, "preactivation")
    if C.ndim != 2:
        raise unusable("preactivation", "one kernel of shape (tokens, tokens)", C.shape)
    dual = lookup(phi).dual
    i, j = np.tril_indices(len(C))
    triples, where = np.unique(np.stack([C[i, i], C[j, j], C[i, j]], 1).astype(float), axis=0, return_inverse=True)
    K = np.zeros(C.shape)
    K[i, j] = K[j, i] = np.array([dual(*map(float, triple)) for triple in triples])[where]
    return K


def equicorrelated(tokens: int, correlation: float = 0.0, variance: float = 1.0) -> Kernel:
    """All tokens of one variance, all pairs of one correlation; correlation 0 is the identity kernel."""
    s = _positive("tokens", tokens)
    if not -1 / max(s - 1, 1) <= correlation <= 1:
        raise unusable("correlation", f"between -1/(tokens - 1) = {-1 / max(s - 1, 1):.4g} and 1", correlation)
    if not 0 <= variance < np.inf:
        raise unusable("variance", "a finite number that is not negative", variance)
    return variance * ((1 - correlation) * np.eye(s) + correlation)


def rbf(positions: Sequence[float] | np.ndarray | int, length_scale: float, variance: float = 1.0) -> Kernel:
    """K_ij = variance exp(-(t_i - t_j)^2 / (2 length_scale^2)) over positions t (a number of tokens means 0, 1, ...)."""
    t = as_array("positions", positions)
    t = np.arange(_positive("positions", positions), dtype=float) if t.ndim == 0 else t
    if t.ndim != 1 or t.size == 0 or not np.all(np.isfinite(t)):
        raise unusable("positions", "a vector of finite positions", f"shape {t.shape}")
    if not 0 <= variance < np.inf:
        raise unusable("variance", "a finite number that is not negative", variance)
    if not 0 < length_scale < np.inf:
        raise unusable("length_scale", "a positive number", length_scale)
    return variance * np.exp(-(np.subtract.outer(t, t) ** 2) / (2 * length_scale**2))


def read(path: str | Path) -> Kernel:
    """K from a file (.npy, .npz, .nc, .zarr, .safetensors, .csv); a file of several arrays must call it `kernel`."""
    from hierattn.base.files.reading import read_array

    return check(read_array(path, "kernel"), f"kernel in {path}")


def check(K: Any, name: str = "K") -> Kernel:
    """K itself if it is a kernel: real, finite, square, symmetric, no eigenvalue below rounding. Nothing is repaired."""
    K = as_array(name, K, kind=None)
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or K.shape[-1] == 0 or K.dtype.kind not in "fiu":
        raise unusable(name, "a real square matrix (tokens, tokens)", f"{K.dtype} of shape {K.shape}")
    if not np.all(np.isfinite(K)):
        raise unusable(name, "finite numbers", f"{np.sum(~np.isfinite(K))} NaN or infinite")
    K = K if K.dtype.kind == "f" and K.itemsize >= 4 else K.astype(float)
    asymmetry = np.abs(K - K.swapaxes(-1, -2)).max()
    if asymmetry > 32 * np.finfo(K.dtype).eps * np.abs(K).max():
        raise unusable(name, "a symmetric matrix", f"entries that differ by {asymmetry:.3g}", "use (K + K.T) / 2")
    correlation, _ = _normalised(K)
    if not _definite(correlation, _tolerance(K)) and np.linalg.eigvalsh(correlation).min() < -_tolerance(K):
        lowest = np.linalg.eigvalsh(K.astype(float)).min()
        raise unusable(name, "a positive semidefinite matrix", f"eigenvalue {lowest:.6g}", "is it a kernel of inputs?")
    return K


def factor(K: Kernel) -> Float[np.ndarray, "*batch s r"]:
    """L with L L' = K: Cholesky's where K is definite, else from eigenvectors, r = rank K; no jitter.

    Ranks are those of the correlation matrix, so that a token of large norm does not make the others look like rounding.
    """
    correlation, norm = _normalised(K)
    if _definite(correlation, _tolerance(K)):
        return (norm[..., None] * np.linalg.cholesky(correlation)).astype(K.dtype)
    values, vectors = np.linalg.eigh(correlation)
    positive = values > _tolerance(K)
    rank = max(1, positive.sum(axis=-1).max())
    root = (vectors * np.sqrt(values.clip(0))[..., None, :])[..., ::-1][..., :rank]
    return (norm[..., None] * root).astype(K.dtype)


def normed(K: Kernel, eps: float = 0.0) -> Kernel:
    """K_ij / sqrt((K_ii + eps) (K_jj + eps)): of inputs divided by their root mean square."""
    norm = np.sqrt(np.diagonal(K, axis1=-2, axis2=-1) + eps)
    if not np.all(norm > 0):
        raise unusable("qk_eps", "a positive number where a token has length zero", eps)
    return K / norm[..., :, None] / norm[..., None, :]


def _normalised(K: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """K as norms times correlations, in float64; a token of norm zero keeps its row as it is."""
    K = K.astype(float)
    norm = np.sqrt(np.diagonal(K, axis1=-2, axis2=-1).clip(0))
    scale = np.where(norm == 0, 1.0, norm)
    return K / scale[..., :, None] / scale[..., None, :], norm


def _definite(correlation: np.ndarray, tolerance: float) -> bool:
    """Are all eigenvalues above the tolerance? Cholesky's factor exists just then, and costs a tenth of the eigenvalues."""
    try:
        np.linalg.cholesky(correlation - tolerance * np.eye(correlation.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def _tolerance(K: Kernel) -> float:
    """Eigenvalues of the correlation matrix below this are rounding of zero."""
    return 8 * K.shape[-1] * float(np.finfo(K.dtype).eps)


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise unusable(name, "a positive whole number", repr(value))
    if value > LARGEST:
        raise UnsafeInputError(f"{name}: expected at most {LARGEST} tokens, got {value}; a kernel of that size does not fit")
    return int(value)
