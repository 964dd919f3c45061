"""What a format provides, and what formats share.

A format is a file of this folder that says which endings it has and which arrays a file holds, without reading their numbers:

    SUFFIXES      its endings, with the dot
    FOLDERS       is what it reads a folder (as .zarr is), not a file?
    arrays(path)  name -> the array when it is asked for; an array without a name is called ""

`hierattn.base.files.reading` lists the formats: a new one is a file here, and a line there. Nothing is unpickled, nothing
outside the file is opened, and no more memory is taken than a file really holds.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hierattn.base.errors import InputError, UnsafeInputError
from hierattn.base.files import stored
from hierattn.base.files.stored import Stored

INFLATION = 200  # real numbers never compress so well
UNREMARKABLE = 2**26  # bytes that are no bomb whatever they were compressed to

Arrays = dict[str, Callable[[], Stored]]  # what a file holds; an array without a name is called ""


class Format(Protocol):
    """A kind of file, known by its endings."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """Its endings."""

    @property
    def FOLDERS(self) -> bool:
        """Is it a folder that is read?"""

    def arrays(self, path: Path) -> Arrays:
        """What a file of this kind holds. Whatever a library raises is taken for a damaged file."""


def sliced(
    path: Path, opened: Callable[[], AbstractContextManager[Any]], shape: tuple, dtype: np.dtype, dims: Any, chunks: Any
) -> Stored:
    """An array of a library that reads slices. Chunks, which are read whole, must not be too large."""
    chunk = dtype.itemsize * math.prod(chunks or ())
    if chunk > stored.LARGEST_ROW:
        limit = f"chunks of at most {stored.LARGEST_ROW} bytes"
        raise UnsafeInputError(f"{path}: expected {limit}, got {chunk}; store it in smaller ones")

    def read(rows: int) -> Iterator[np.ndarray]:
        for i in range(0, shape[0] if shape else 1, rows):
            with opened() as array:
                block = array[i : min(i + rows, shape[0])] if shape else np.asarray(array[()])[None]
            yield np.asarray(block, dtype)

    return Stored("", tuple(shape), dtype, read, dims=tuple(dims) if dims else None, unit=chunks[0] if chunks else 1)


def check_inflation(path: Path, claimed: int, held: int) -> None:
    """Refuse a few bytes that claim to be very many."""
    if claimed > max(INFLATION * held, UNREMARKABLE):
        raise UnsafeInputError(f"{path}: expected real numbers, got {held} bytes that claim to be {claimed}; is it a bomb?")


def package(name: str, path: Path) -> Any:
    """A package that this file needs and that may be missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise InputError(f"{path}: expected the package {name} to read it, got none; pip install 'hierattn[files]'") from None
