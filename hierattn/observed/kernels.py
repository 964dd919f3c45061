"""The kernel that comes with observed outputs: given, made of inputs, the identity, or not there and to be inferred."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import UnsafeInputError, unusable
from hierattn.base.files.stored import Stored, in_memory
from hierattn.layer import kernels

LARGEST = 2**28  # bytes of one matrix a network, in float64
Kernels = Float[np.ndarray, "*network t t"] | None


class Promised(NamedTuple):
    """A kernel whose size is known and whose numbers are not yet read; `certain` if the user fixed its number of tokens."""

    origin: str
    tokens: int
    certain: bool
    read: Callable[[], Kernels]


def promised(kernel: Any, inputs: Any, s: int, networks: int, available: int) -> Promised:
    """What `kernel` and `inputs` say of the first `networks` of `available` networks that show s tokens."""
    if kernel is not None and inputs is not None:
        raise unusable("kernel", "either a kernel or inputs", "both", "leave one out")
    if inputs is not None:
        return _from_inputs(as_stored("inputs", inputs), networks, available)
    if kernel is None or (isinstance(kernel, str) and kernel == "inferred"):
        return Promised("inferred", s, False, lambda: None)
    if isinstance(kernel, str):
        return _from_word(kernel, s)
    K = as_stored("kernel", kernel)
    K.check_real()
    if len(K.shape) not in (2, 3) or K.shape[-1] != K.shape[-2] or 0 in K.shape:
        raise unusable(K.label, "shape (token, token) or (network, token, token)", K.shape)
    _check_networks(K, networks, available)
    return Promised("given", K.shape[-1], True, partial(_read, K, networks, lambda part: _exact(part, K.label)))


def as_stored(name: str, value: Any) -> Stored:
    """An argument as an array to be read."""
    return value if isinstance(value, Stored) else in_memory(name, value)


def is_word(kernel: Any) -> bool:
    """Is this kernel one that a word describes?"""
    return isinstance(kernel, str) and (kernel == "inferred" or kernel.partition(":")[0] == "identity")


def check_size(label: str, networks: int, tokens: int) -> None:
    """One matrix a network is all we hold of outputs, however many coordinates they have; it must fit."""
    needed = 8 * networks * tokens**2
    if needed > LARGEST:
        most = max(1, LARGEST // (8 * tokens**2))
        limit = f"at most {most} networks of {tokens} tokens"
        raise UnsafeInputError(f"{label}: expected {limit}, got {networks}; take the first {most} (networks={most})")


def _from_word(word: str, s: int) -> Promised:
    name, _, size = word.partition(":")
    if name != "identity" or (size and not (size.isdecimal() and int(size))):
        raise unusable("kernel", "an array, 'identity', 'identity:TOKENS' or 'inferred'", repr(word))
    t = int(size or s)
    return Promised("identity", t, bool(size), lambda: kernels.equicorrelated(t))


def _from_inputs(X: Stored, networks: int, available: int) -> Promised:
    X.check_real()
    if len(X.shape) not in (2, 3) or 0 in X.shape:
        raise unusable(X.label, "shape (network, token, width) or (token, width)", X.shape)
    _check_networks(X, networks, available)
    return Promised(
        "inputs", X.shape[-2], True, partial(_read, X, networks, lambda part: kernels.from_inputs(part.astype(float)))
    )


def _check_networks(array: Stored, networks: int, available: int) -> None:
    if len(array.shape) == 3 and array.shape[0] != available:
        raise unusable(array.label, f"{available} networks, as the outputs have, or no network axis", array.shape)
    check_size(array.label, networks if len(array.shape) == 3 else 1, array.shape[-2])


def _read(array: Stored, networks: int, kernel_of: Callable[[np.ndarray], np.ndarray]) -> Kernels:
    if len(array.shape) == 2:
        return kernel_of(np.concatenate(list(array.finite_blocks(array.shape[0]))))
    t, done = array.shape[1], 0
    K = np.empty((networks, t, t))
    for block in array.finite_blocks(networks):
        K[done : done + len(block)] = kernel_of(block)
        done += len(block)
    return K


def _exact(K: np.ndarray, label: str) -> np.ndarray:
    """K in float64. One of lower precision is a kernel only up to its own rounding: then L L' is one to the last digit."""
    K = kernels.check(K, label)
    if K.dtype == np.float64:
        return K
    L = kernels.factor(K).astype(np.float64)
    return L @ L.swapaxes(-1, -2)
