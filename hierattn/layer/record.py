"""A layer written down and read back: every field of the description, one array each, in files, fits and captures alike.

    layer_version               3 with any of the fields marked *, else 2; files without it are older: softmax, the usual
                                scaling, one scale for all heads
    heads                       the number of heads
    score_scale, value_scale    sigma_Q sigma_K and sigma_V sigma_O, one number or one for each head: only products matter;
                                of normed queries and keys score_scale is the gain
    head_dim, key_value_heads, window*, chunk*              whole numbers; absent (or 0) where they are None
    scaling, score_function, qk_norm*                       words; absent where they are the usual ones
    mask                        "causal" or boolean (query, key)
    bias, rotary, qk_eps*, cap*, sink*, sink_scale*         numbers and arrays
    query_scale*, key_scale*    sigma_Q and sigma_K where eps makes them matter

A description needs heads and both scales; outputs that come with one are held against a law fixed in advance.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.base.files import reading
from hierattn.layer.architecture import Architecture
from hierattn.layer.checks import SCALE_NAMES

VERSION = 3
SCALES = ("score_scale", "value_scale")
COUNTS = ("head_dim", "key_value_heads", "window", "chunk")
WORDS = ("scaling", "score_function", "qk_norm")
ARRAYS = ("bias", "rotary", "qk_eps", "cap", "sink", "sink_scale")
OF_EPS = {"query_scale": "sigma_q", "key_scale": "sigma_k"}
NEW = {"window", "chunk", "qk_norm", "qk_eps", "cap", "sink", "sink_scale", *OF_EPS}  # of version 3
MASK = "mask"
NAMES = ("heads", *SCALES, *COUNTS, *WORDS, *ARRAYS, *OF_EPS, MASK, "layer_version")  # of arrays that describe a layer
TELLING = (*SCALES, *COUNTS, *WORDS, *ARRAYS, "layer_version")  # those that nothing but a description has


def arrays_of(layer: Architecture) -> dict[str, np.ndarray]:
    """What must be written for this layer to be read back. A field that is not known here is an error, not left out."""
    unknown = {field.name for field in fields(layer)} - {"heads", "qk_gain", *SCALE_NAMES, *COUNTS, *WORDS, *ARRAYS, MASK}
    if unknown:
        raise unusable("layer", "fields that a file can hold", ", ".join(sorted(unknown)))
    told: dict[str, Any] = {"layer_version": 2, "heads": layer.heads}
    for name in SCALES:
        scale = np.asarray(getattr(layer, name), float)
        told[name] = scale[0] if np.ptp(scale) == 0 else scale
    usual = Architecture()
    told |= {name: getattr(layer, name) for name in WORDS if getattr(layer, name) != getattr(usual, name)}
    told |= {name: getattr(layer, name) for name in (*COUNTS, *ARRAYS, MASK)}
    if layer.qk_eps:
        told |= {name: getattr(layer, field) for name, field in OF_EPS.items()}
    else:
        told.pop("qk_eps")
    told = {name: value for name, value in told.items() if value is not None}
    told["layer_version"] = VERSION if NEW & set(told) else 2
    return {name: np.asarray(value) for name, value in told.items()}


def layer_from(arrays: Mapping[str, Any], where: str) -> Architecture | None:
    """The layer that arrays describe; None if they describe none. Errors name where the arrays are from."""
    told = [name for name in TELLING if name in arrays]
    if not told:
        return None
    lacking = [name for name in ("heads", *SCALES) if name not in arrays]
    if lacking:
        raise InputError(f"{where}: expected {', '.join(lacking)} beside {told[0]}, got none; describe the layer wholly")
    given = {name: np.asarray(arrays[name]) for name in NAMES if name in arrays}
    try:
        return _layer(given)
    except InputError as wrong:
        raise InputError(f"{where}: {wrong}") from None


def layer_in(path: str | Path) -> Architecture | None:
    """The layer that a file describes; None if there is no description."""
    held = reading.arrays(path)
    if not any(name in held for name in TELLING):
        return None
    return layer_from({name: reading.read_array(path, name) for name in NAMES if name in held}, str(path))


def mask_from(array: np.ndarray) -> Any:
    """A mask as it is described: a word, or booleans, which may have been written as 0 and 1; None where all is allowed."""
    if array.dtype.kind in "UTO" and array.size == 1:
        return str(array.item())
    if array.dtype.kind in "iu" and np.isin(array, (0, 1)).all():
        array = array.astype(bool)
    return None if array.dtype == bool and array.all() else array


def _layer(given: dict[str, np.ndarray]) -> Architecture:
    version = int(_number("layer_version", given["layer_version"], "iu")) if "layer_version" in given else 1
    if version > VERSION:
        raise unusable("layer_version", f"at most {VERSION}", version, "read it with a newer hierattn")
    told: dict[str, Any] = {name: int(_number(name, given[name], "iu")) or None for name in ("heads", *COUNTS) if name in given}
    told |= {name: _word(name, given[name]) for name in WORDS if name in given}
    told |= {name: given[name] for name in ARRAYS if name in given}
    told |= {field: given[name] for name, field in OF_EPS.items() if name in given}
    told |= {MASK: mask_from(given[MASK])} if MASK in given else {}
    layer = Architecture(**told)
    return layer.with_scales(**{name: _scales(name, given[name], layer.heads) for name in SCALES})


def _number(name: str, value: np.ndarray, kinds: str) -> float:
    if value.size != 1 or value.dtype.kind not in kinds:
        raise unusable(name, "one number", f"{value.dtype} of shape {value.shape}")
    return value.item()


def _scales(name: str, value: np.ndarray, heads: int) -> Any:
    if value.dtype.kind != "f" or value.shape not in ((), (1,), (heads,)):
        raise unusable(name, f"one number, or {heads}, one for each head", f"{value.dtype} of shape {value.shape}")
    return value.item() if value.size == 1 else value


def _word(name: str, value: np.ndarray) -> str:
    if value.size != 1 or value.dtype.kind not in "UTO":
        raise unusable(name, "one word", f"{value.dtype} of shape {value.shape}")
    return str(value.item())
