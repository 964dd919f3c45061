"""Masks: which keys a query may look at."""

from typing import Any

import numpy as np
from jaxtyping import Bool

from hierattn.base.errors import as_array, check_choice, unusable
from hierattn.base.tracing import traced

WORDS = ("causal",)


def sequence_mask(lengths: Any, causal: bool = False) -> Bool[np.ndarray, "s s"]:
    """Mask for several sequences through one network: tokens see their own sequence only (THEORY section 7)."""
    numbers = as_array("lengths", lengths, kind=None)
    if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu" or numbers.min() < 1:
        raise unusable("lengths", "one positive whole number per sequence", lengths)
    sequence = np.repeat(np.arange(numbers.size), numbers)
    mask = sequence[:, None] == sequence[None, :]
    return np.tril(mask) if causal else mask


def checked(mask: Any) -> Any:
    """None, "causal", or a boolean (queries, keys) array that leaves every query a key."""
    if mask is None or traced(mask):
        return mask
    if isinstance(mask, str):
        check_choice("mask", mask, WORDS)
        return mask
    mask = as_array("mask", mask, kind=None)
    if mask.dtype != bool or mask.ndim != 2:
        raise unusable("mask", "None, 'causal' or a boolean (queries, keys) array", f"{mask.dtype} of shape {mask.shape}")
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise unusable("mask", "at least one allowed key for every query", f"none for query {empty[0]}", "allow it one")
    return mask


def allowed(mask: Any, s_q: int, s_k: int, window: int | None = None, chunk: int | None = None) -> Any:
    """The mask as a boolean (query, key) array, checked to fit, within a window and chunks of positions."""
    found = _allowed(mask, s_q, s_k)
    if window is None and chunk is None:
        return found
    if s_q != s_k:
        name = "window" if chunk is None else "chunk"
        raise unusable(name, "None for cross-attention: queries and keys have no common positions", window or chunk)
    place = np.arange(s_q)
    apart = np.abs(place[:, None] - place)
    near = (apart < (window or s_q)) & (place[:, None] // (chunk or s_q) == place // (chunk or s_q))
    return checked(found & near)


def _allowed(mask: Any, s_q: int, s_k: int) -> Any:
    if mask is None:
        return np.ones((s_q, s_k), bool)
    if isinstance(mask, str):
        if s_q != s_k:
            raise unusable("mask", "a boolean (queries, keys) array for cross-attention", "'causal'")
        return np.tri(s_q, dtype=bool)
    if mask.shape != (s_q, s_k):
        raise unusable("mask", f"shape {(s_q, s_k)} (queries, keys)", mask.shape)
    return mask
