"""NumPy's own files: .npy, one array without a name, and .npz, a zip archive of them."""

import math
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from hierattn.base.errors import InputError, UnsafeInputError
from hierattn.base.files.formats.protocol import Arrays, check_inflation
from hierattn.base.files.stored import TOO_LARGE, Stored

SUFFIXES, FOLDERS = (".npy", ".npz"), False
LARGEST_FORTRAN = 2**28  # bytes of an array in Fortran order, which is read whole
UNNAMED = "arr_0"  # what numpy.savez calls an array that is given no name


def arrays(path: Path) -> Arrays:
    """One array, or the members of an archive; an array that numpy.savez was given alone, and no name for, has none here."""
    if path.suffix.lower() == ".npy":
        return {"": partial(_array, path, lambda: path.open("rb"), path.stat().st_size)}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(re.match(r"[/\\]|[A-Za-z]:", member.filename) or ".." in re.split(r"[/\\]", member.filename) for member in members):
        raise UnsafeInputError(f"{path}: expected plain array names, got one that leaves the archive")
    held: Arrays = {member.filename.removesuffix(".npy"): partial(_member, path, member) for member in members}
    return {"": held[UNNAMED]} if list(held) == [UNNAMED] else held


def _member(path: Path, member: zipfile.ZipInfo) -> Stored:
    check_inflation(path, member.file_size, min(member.compress_size, path.stat().st_size))

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            yield file

    return _array(path, opened, member.file_size)


def _array(path: Path, opened: Callable[[], AbstractContextManager[IO[bytes]]], size: int) -> Stored:
    """An array in NumPy's format, whose header must not claim more than there is."""
    with opened() as file:
        major = np.lib.format.read_magic(file)[0]
        header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        start = file.tell()
    if dtype.hasobject:
        raise InputError(f"{path}: expected numbers, got pickled objects")
    total, row = shape[0] if shape else 1, dtype.itemsize * math.prod(shape[1:])
    if any(length < 0 for length in shape):
        raise InputError(f"{path}: expected an array, got a header that claims shape {shape}")
    if total * row > size - start:
        kind = UnsafeInputError if total * row > TOO_LARGE else InputError
        claim = f"got a header that claims {total * row}"
        raise kind(f"{path}: expected at most the {size - start} bytes it holds, {claim}; is it truncated?")
    if fortran and total * row > LARGEST_FORTRAN:
        remedy = "save numpy.ascontiguousarray of it"
        raise UnsafeInputError(f"{path}: expected C order in an array of {total * row} bytes, got Fortran order; {remedy}")

    def read(rows: int) -> Iterator[np.ndarray]:
        with opened() as file:
            file.read(start)
            if fortran:
                everything = np.frombuffer(_exactly(file, total * row), dtype).reshape(shape[::-1]).T
                yield from (everything[i : i + rows] for i in range(0, total, rows))
            else:
                for i in range(0, total, rows):
                    count = min(rows, total - i)
                    yield np.frombuffer(_exactly(file, count * row), dtype).reshape(count, *shape[1:])

    return Stored("", shape, dtype, read)


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
