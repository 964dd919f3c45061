"""Outputs of several layers: files of one layer each, or a file whose arrays have a first axis `layer`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.base.files import reading as files
from hierattn.base.files.stored import Stored, in_memory
from hierattn.layer.record import layer_in
from hierattn.observed.checks import DIMS, is_mask_word
from hierattn.observed.kernels import is_word
from hierattn.observed.observations import Observations, read

Maker = Callable[[], Observations]
LAYERED = ("layer", *DIMS)


def read_layers(paths: Sequence[str | Path], **known: Any) -> dict[str, Maker]:
    """Name -> how to read that layer, in order: names are those of files, with the layer's number where a file has several.

    known: what `read` takes, for all layers. What cannot be read is found out when it is asked for, so that one bad file does
    not keep others from being read.
    """
    found: dict[str, Maker] = {}
    for path in paths:
        outputs = _outputs(path)
        if outputs is None or len(outputs.shape) != 4:
            found[_new(Path(path).stem, found)] = _of_file(path, known)
            continue
        if outputs.dims is not None and set(outputs.dims) == set(LAYERED) and outputs.dims != LAYERED:
            raise unusable(outputs.label, f"axes {', '.join(LAYERED)}", ", ".join(outputs.dims), "transpose it")
        for number in range(outputs.shape[0]):
            name = f"layer_{number}" if len(paths) == 1 else f"{Path(path).stem}_layer_{number}"
            found[_new(name, found)] = _of_axis(path, outputs, number, known)
    return found


def _outputs(path: str | Path) -> Stored | None:
    """The outputs in a file, not yet read; None if there are none, which is said when they are needed."""
    try:
        return files.find(path, "outputs")
    except InputError:
        return None


def _new(name: str, taken: dict[str, Maker]) -> str:
    """The name, with a number if it is taken."""
    names = (name if k == 1 else f"{name}_{k}" for k in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


def _of_file(path: str | Path, known: dict[str, Any]) -> Maker:
    return lambda: read(path, **known)


def _of_axis(path: str | Path, outputs: Stored, number: int, known: dict[str, Any]) -> Maker:
    def make() -> Observations:
        held = files.arrays(path)
        given = {name: known.get(name) for name in ("kernel", "inputs", "tokens", "heads", "mask")}
        if given["kernel"] is None and given["inputs"] is None:
            given |= {name: path for name in ("kernel", "inputs") if name in held}
        for name in ("tokens", "heads"):
            if given[name] is None and name in held:
                given[name] = files.read_array(path, name)
        if given["mask"] is None and "mask" in held:
            given["mask"] = path
        kept = {name: _part(name, value, outputs, number) for name, value in given.items() if value is not None}
        return Observations(_row(outputs, number), layer=layer_in(path), networks=known.get("networks"), **kept)

    return make


def _row(array: Stored, number: int) -> Stored:
    """One layer of an array, read alone."""
    (row,) = islice(array.read(1), number, number + 1)
    return replace(in_memory(f"layer {number} of {array.label}", row[0]), source=array.source)


def _part(name: str, value: Any, outputs: Stored, number: int) -> Any:
    """What belongs to one layer: of arrays with an axis of layers its part, and all of what they share."""
    if name == "heads":
        heads = np.asarray(value)
        return heads[number] if heads.shape == outputs.shape[:1] else value
    if name in ("kernel", "inputs") and isinstance(value, (str, Path)) and not is_word(value):
        array = files.find(value, name)
        return _row(array, number) if _has_layers(array, outputs) else array
    if name == "mask" and isinstance(value, (str, Path)) and not is_mask_word(value):
        return files.read_array(value, name)
    return value


def _has_layers(array: Stored, outputs: Stored) -> bool:
    """Is the first axis of a kernel, or of inputs, that of layers? Where it could be that of networks, nobody guesses."""
    layers, networks = outputs.shape[:2]
    if array.dims is not None and array.dims[0] in ("layer", "network"):
        return array.dims[0] == "layer"
    if len(array.shape) != 3 or array.shape[0] != layers:
        return len(array.shape) == 4
    if layers == networks:
        expected = f"{array.label}: expected axes that tell {layers} layers from {networks} networks"
        raise InputError(f"{expected}, got shape {array.shape}; give it four axes, layer first, or a file for each layer")
    return True
