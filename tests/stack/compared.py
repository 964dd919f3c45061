"""Chains of Gram matrices against explicit stacks: one p-value for many two-sample tests of norms, cosines, eigenvalues."""

import numpy as np
from scipy import stats

NETWORKS = 1024


def gram_of(X):
    """Of streams (network, layer, token, coordinate)."""
    return np.einsum("mlin,mljn->mlij", X, X) / X.shape[-1]


def numbers(gram):
    """What is compared, (network, number): products, cosines, eigenvalues, and products of two layers' products."""
    i, j = np.tril_indices(gram.shape[-1])
    scale = np.sqrt(np.einsum("mlii->mli", gram))
    cosine = gram / scale[..., None] / scale[:, :, None]
    each = [gram[..., i, j], cosine[..., i, j], np.linalg.eigvalsh(gram)]
    two = gram[:, 1, i, j] * gram[:, -1, i, j]
    return np.concatenate([*(x.reshape(len(gram), -1) for x in each), two], axis=1)


def p_value(gram, explicit):
    """Smallest of all two-sample p-values, times their number; numbers that do not vary must agree to rounding."""
    x, y = numbers(gram), numbers(explicit)
    varying = (np.ptp(x, axis=0) > 1e-9) | (np.ptp(y, axis=0) > 1e-9)
    assert np.allclose(x[:1, ~varying], y[:1, ~varying], rtol=0, atol=1e-9)
    found = [stats.ks_2samp(a, b).pvalue for a, b in zip(x[:, varying].T, y[:, varying].T, strict=True)]
    return min(1.0, min(found) * len(found))
