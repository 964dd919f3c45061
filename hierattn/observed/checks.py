"""What comes with outputs, checked: their shape, their place among the kernel's tokens, heads, mask and layer that agree."""

from typing import Any

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.base.files.stored import Stored
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import mask_from
from hierattn.observed.kernels import Promised, as_stored

DIMS = ("network", "token", "coordinate")
WORDS = ("causal", "none")  # masks that are no file's name


def checked_shape(y: Stored) -> tuple[int, int, int]:
    """Networks, tokens and coordinates of outputs."""
    y.check_real()
    if len(y.shape) != 3:
        raise unusable(y.label, "shape (network, token, coordinate)", y.shape)
    if y.dims is not None and set(y.dims) == set(DIMS) and y.dims != DIMS:
        raise unusable(y.label, f"axes {', '.join(DIMS)}", f"them swapped: {', '.join(y.dims)}", "transpose it")
    if 0 in y.shape:
        raise unusable(y.label, "at least one network, token and coordinate", f"shape {y.shape}")
    return y.shape


def checked_networks(networks: int, available: int, label: str) -> int:
    """How many of the networks are used."""
    if not isinstance(networks, (int, np.integer)) or isinstance(networks, bool) or not 1 <= networks <= available:
        remedy = f"{label} has {available}" if label != "networks" else ""
        raise unusable("networks", f"a whole number from 1 to {available}", repr(networks), remedy)
    return int(networks)


def checked_heads(heads: Any) -> int:
    """The number of heads, from an argument or a file."""
    stored = as_stored("heads", heads)
    number = stored.whole()
    if number.size != 1 or number.dtype.kind not in "iu" or number.item() < 1:
        raise unusable(stored.label, "a positive whole number", repr(number.tolist()))
    return int(number.item())


def setting(
    label: str, shape: tuple[int, ...], K: Promised, tokens: Any, heads: Any, mask: Any, layer: Architecture | None
) -> dict[str, Any]:
    """Tokens, heads, mask and layer of outputs of this shape. What is said twice must be said alike: a layer has its mask, or
    takes the one that is given, and "none" takes it off.
    """
    indices = _checked_tokens(tokens, label, shape, K)
    H = None if heads is None else checked_heads(heads)
    if layer is None:
        return {"tokens": indices, "heads": H, "mask": _checked_mask(mask, K.tokens), "layer": None}
    if H not in (None, layer.heads):
        raise unusable("heads", f"{layer.heads}, as the layer has", H, "leave it out")
    if mask is None:
        _checked_mask(layer.mask, K.tokens)
    else:
        if layer.mask is not None:
            check_mask_agrees(mask, layer.mask, "the layer")
        layer = layer.replace(mask=_checked_mask(mask, K.tokens))
    if layer.bias is not None and layer.bias.shape[-2:] != (K.tokens, K.tokens):
        raise unusable("bias", f"shape (..., {K.tokens}, {K.tokens}), as the kernel has tokens", layer.bias.shape)
    return {"tokens": indices, "heads": layer.heads, "mask": layer.mask, "layer": layer}


def is_mask_word(mask: Any) -> bool:
    """Is this mask one that a word describes, and no name of a file?"""
    return isinstance(mask, str) and mask in WORDS


def check_mask_agrees(mask: Any, other: Any, whose: str) -> None:
    """Refuse a mask where there is another one. "none", on purpose, agrees with any."""
    given, there = (as_stored("mask", x).whole() for x in (mask, other))
    if given.ndim == 0 and given.item() == "none":
        return
    shape = next((x.shape for x in (given, there) if x.ndim == 2), None)
    if shape is not None:
        given, there = (x.astype(bool) if x.ndim else np.tri(*shape).astype(bool) for x in (given, there))
    if not np.array_equal(given, there):
        raise unusable("mask", f"that of {whose}", "another", "leave it out, or take it off on purpose with 'none'")


def _checked_tokens(tokens: Any, label: str, shape: tuple[int, ...], K: Promised) -> np.ndarray:
    """Indices of the kernel's tokens; without them, all in order, and a size that does not fit is an error."""
    s, t = shape[1], K.tokens
    if tokens is None and s != t:
        remedy = "say with tokens which of the kernel's they are"
        for axis, name in ((2, "last"), (0, "first")):
            if shape[axis] == t:
                remedy = f"axes swapped? its {name} axis has {t}: use numpy.swapaxes(outputs, 1, {axis}), or {remedy}"
                break
        raise unusable(label, f"shape (network, {t} tokens as in the kernel, coordinate)", shape, remedy)
    if tokens is None:
        return np.arange(s)
    given = as_stored("tokens", tokens)
    indices = given.whole()
    if not K.certain:
        raise unusable(given.label, "a kernel whose tokens they are", "none", "give it, or 'identity:TOKENS'")
    if indices.dtype.kind not in "iu" or indices.shape != (s,):
        raise unusable(
            given.label, f"{s} whole numbers, one for each token of the outputs", f"{indices.dtype} of shape {indices.shape}"
        )
    if indices.min() < 0 or indices.max() >= t or len(set(indices.tolist())) < s:
        raise unusable(given.label, f"different numbers from 0 to {t - 1}, the kernel's tokens", indices.tolist())
    return indices.astype(int)


def _checked_mask(mask: Any, t: int) -> Any:
    """The mask of t tokens as a layer holds it; None where all is allowed."""
    if mask is None or (isinstance(mask, str) and mask == "none"):
        return None
    stored = as_stored("mask", mask)
    array = stored.whole()
    try:
        layer = Architecture(mask=mask_from(array))
        layer.allowed(t, t)
    except InputError as wrong:
        raise InputError(str(wrong).replace("mask", stored.label, 1)) from None
    if layer.mask is None and array.shape != (t, t):
        raise unusable(stored.label, f"shape ({t}, {t}) (queries, keys)", array.shape)
    return layer.mask
