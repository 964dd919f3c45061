"""Safetensors (.safetensors): tensors with names, as models are published."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.files.formats.protocol import Arrays, package, sliced
from hierattn.base.files.stored import Stored

SUFFIXES, FOLDERS = (".safetensors",), False
KINDS = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "f4", "BOOL": "?"} | {
    f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (8, 4, 2, 1)
}  # and what they are read as


def arrays(path: Path) -> Arrays:
    """The tensors of a file."""
    with package("safetensors", path).safe_open(path, framework="np") as file:
        return {name: partial(_array, path, name) for name in list(file.keys())}


def _array(path: Path, name: str) -> Stored:
    @contextmanager
    def opened() -> Iterator[Any]:  # anew for every block: what was read stays mapped, and counts, until it is closed
        with package("safetensors", path).safe_open(path, framework="np") as file:
            yield file.get_slice(name)

    with opened() as tensor:
        shape, kind = tuple(tensor.get_shape()), tensor.get_dtype()
    if kind not in KINDS:
        raise InputError(f"{path}: expected {name} in one of {', '.join(KINDS)}, got {kind}")
    return sliced(path, opened, shape, np.dtype(KINDS[kind]), None, None)
