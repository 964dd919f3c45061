"""What was understood of observed outputs, as a flat record: sizes, scales, the kernel's spectrum, tokens that look wrong."""

from typing import Any

import numpy as np

from hierattn.base.files.stored import BLOCK
from hierattn.layer import kernels
from hierattn.observed.described import told
from hierattn.observed.observations import Observations

SAME = 1e-12  # squared difference of two tokens, relative to their squares, that is rounding


def describe(observations: Observations) -> dict[str, Any]:
    """Everything a fit would start from; `reasons` says what to know before one."""
    o, K = observations, observations.kernel
    mean = None if K is None else K.reshape(-1, *K.shape[-2:]).mean(axis=0)
    record: dict[str, Any] = {
        "source": o.source,
        "networks": o.networks,
        "tokens": o.s,
        "coordinates": o.coordinates,
        "scale": o.scale,
        "token_scales": o.token_scales.tolist(),
        "not_finite": 0,
        "constant_tokens": list(o.constant_tokens),
        "duplicated_tokens": duplicates(o.S.sum(axis=0)),
        "kernel": o.kernel_origin,
        "kernels": 0 if K is None else len(K) if K.ndim == 3 else 1,
        "kernel_tokens": None if mean is None else len(mean),
        "kernel_eigenvalues": None if mean is None else np.linalg.eigvalsh(mean)[::-1].tolist(),
        "kernel_rank": None if K is None else rank(K),
        "kernel_duplicated_tokens": None if mean is None else duplicates(mean),
        "observed_tokens": o.tokens.tolist(),
        "heads": o.heads,
        "mask": o.mask if isinstance(o.mask, str) else "none" if o.mask is None else "given",
        "outputs_complete": o.complete,
        "outputs_kept": o.outputs.shape[-1],
        "sha256": o.sha256,
    }
    if o.layer is not None:
        record |= told(o.layer)
    return record | {"reasons": _reasons(record)}


def duplicates(G: np.ndarray) -> list[list[int]]:
    """Groups of tokens that are one and the same, from their inner products G, (token, token): |x_i - x_j|^2 = 0."""
    square = np.diagonal(G)
    total = square[:, None] + square
    same = total - 2 * G <= SAME * total
    groups = {tuple(np.flatnonzero(row).tolist()) for row in same}
    return sorted(list(group) for group in groups if len(group) > 1)


def rank(K: np.ndarray) -> int:
    """The rank of a kernel, or the largest of many, a few of which are factored at a time."""
    parts = np.array_split(K.reshape(-1, *K.shape[-2:]), 1 + K.nbytes // BLOCK)
    return max(kernels.factor(part).shape[-1] if part.any() else 0 for part in parts)


def _reasons(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What is unusual, each with its code, a sentence and the numbers behind it."""
    found = {
        "kernel_inferred": (record["kernel"] == "inferred", "no kernel and no inputs: K is to be inferred", ["tokens"]),
        "kernel_each": (record["kernels"] > 1, "a kernel for every network: eigenvalues are those of their mean", ["kernels"]),
        "one_network": (record["networks"] == 1, "one network is Gaussian: the hierarchy cannot be seen", ["networks"]),
        "constant_tokens": (bool(record["constant_tokens"]), "some tokens never vary", ["constant_tokens"]),
        "duplicated_tokens": (bool(record["duplicated_tokens"]), "some tokens have equal outputs", ["duplicated_tokens"]),
        "outputs_cut": (not record["outputs_complete"], "raw outputs of leading coordinates only are kept", ["outputs_kept"]),
    }
    return [
        {"code": code, "message": message, "numbers": {name: record[name] for name in names}}
        for code, (applies, message, names) in found.items()
        if applies
    ]
