"""A layer described in a file beside its outputs, one array a property.

There must be heads, score_scale and value_scale, and there may be head_dim, key_value_heads, rotary and bias. Outputs that come
with a description are held against a law fixed in advance.
"""

from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.base.files import reading as files
from hierattn.layer.architecture import Architecture

SCALES = ("score_scale", "value_scale")
COUNTS = ("head_dim", "key_value_heads")
ARRAYS = ("rotary", "bias")


def layer_in(path: str | Path) -> Architecture | None:
    """The layer that a file describes, without its mask; None if there is no description."""
    held = files.arrays(path)
    told = [name for name in (*SCALES, *COUNTS, *ARRAYS) if name in held]
    if not told:
        return None
    lacking = [name for name in ("heads", *SCALES) if name not in held]
    if lacking:
        raise InputError(f"{path}: expected {', '.join(lacking)} beside {told[0]}, got none; describe the layer wholly")
    given = {name: files.read_array(path, name) for name in ("heads", *told)}
    try:
        scales = {name: _number(name, given[name], "f") for name in SCALES}
        counts = {name: int(_number(name, given[name], "iu")) for name in ("heads", *COUNTS) if name in given}
        properties: dict[str, Any] = {**counts, **{name: given[name] for name in ARRAYS if name in given}}
        return Architecture(**properties).with_scales(**scales)
    except InputError as wrong:
        raise InputError(f"{path}: {wrong}") from None


def arrays_of(layer: Architecture) -> dict[str, np.ndarray]:
    """What a file must hold for `layer_in` to find this layer: all heads must have one scale."""
    told: dict[str, Any] = {"heads": layer.heads}
    for name in SCALES:
        scale = np.asarray(getattr(layer, name), float)
        if np.ptp(scale) > 0:
            raise unusable(name, "one value for all heads in a file", scale.tolist())
        told[name] = scale[0]
    told |= {name: getattr(layer, name) for name in (*COUNTS, *ARRAYS)}
    return {name: np.asarray(value) for name, value in told.items() if value is not None}


def _number(name: str, value: np.ndarray, kinds: str) -> float:
    if value.size != 1 or value.dtype.kind not in kinds:
        raise unusable(name, "one number", f"{value.dtype} of shape {value.shape}")
    return value.item()
