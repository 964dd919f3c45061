"""The formats we read, each as arrays that can be had block by block: .npy, .npz, .nc, .zarr, .safetensors, .csv.

Nothing is unpickled, nothing outside the file is opened, and no more memory is taken than a file really holds.
"""

import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from hierattn.base.errors import InputError, UnsafeInputError
from hierattn.base.files.stored import LARGEST_ROW, TOO_LARGE, Stored, in_memory

LONG_FORM = ["network", "token", "coordinate", "output"]  # header of a .csv file with one number a line
TENSORS = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "f4", "BOOL": "?"} | {
    f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (8, 4, 2, 1)
}  # kinds of safetensors, and what they are read as
LARGEST_CSV = 2**27  # bytes of text, which is read whole
LARGEST_FORTRAN = 2**28  # bytes of an array in Fortran order, which is read whole
INFLATION = 200  # real numbers never compress so well
UNREMARKABLE = 2**26  # bytes that are no bomb whatever they were compressed to

Arrays = dict[str, Callable[[], Stored]]  # what a file holds; an array without a name is called ""


def _npy(path: Path) -> Arrays:
    return {"": partial(_numpy_array, path, lambda: path.open("rb"), path.stat().st_size)}


def _npz(path: Path) -> Arrays:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(re.match(r"[/\\]|[A-Za-z]:", member.filename) or ".." in re.split(r"[/\\]", member.filename) for member in members):
        raise UnsafeInputError(f"{path}: expected plain array names, got one that leaves the archive")
    return {member.filename.removesuffix(".npy"): partial(_npz_array, path, member) for member in members}


def _npz_array(path: Path, member: zipfile.ZipInfo) -> Stored:
    _check_inflation(path, member.file_size, min(member.compress_size, path.stat().st_size))

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            yield file

    return _numpy_array(path, opened, member.file_size)


def _numpy_array(path: Path, opened: Callable[[], AbstractContextManager[IO[bytes]]], size: int) -> Stored:
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


def _nc(path: Path) -> Arrays:
    import h5netcdf

    with h5netcdf.File(path, "r", phony_dims="sort") as file:
        return {name: partial(_nc_array, path, name) for name in file.variables}


def _nc_array(path: Path, name: str) -> Stored:
    import h5netcdf
    import h5py

    with h5py.File(path, "r") as raw, h5netcdf.File(raw, "r", phony_dims="sort") as file:
        linked = not isinstance(raw.get(name, getlink=True), h5py.HardLink)
        if linked or raw[name].is_virtual or raw[name].external:
            raise UnsafeInputError(f"{path}: expected {name} in the file itself, got a link to elsewhere")
        shape, dtype, dims, chunks = raw[name].shape, raw[name].dtype, file[name].dimensions, raw[name].chunks
        _check_inflation(path, dtype.itemsize * math.prod(shape), raw[name].id.get_storage_size())

    @contextmanager
    def opened() -> Iterator[Any]:
        with h5py.File(path, "r") as raw:
            yield raw[name]

    return _sliced(path, opened, shape, dtype, dims, chunks)


def _zarr(path: Path) -> Arrays:
    zarr = _package("zarr", path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files that are not zarr's
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": partial(_zarr_array, path, root)}
        return {name: partial(_zarr_array, path, array) for name, array in root.arrays()}


def _zarr_array(path: Path, array: Any) -> Stored:
    if "pickle" in str((array.filters, array.compressors)).lower():
        raise InputError(f"{path}: expected numbers, got pickled objects")
    dims = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    _check_inflation(path, array.nbytes, array.nbytes_stored())
    return _sliced(path, partial(nullcontext, array), array.shape, array.dtype, dims, array.chunks)


def _safetensors(path: Path) -> Arrays:
    with _package("safetensors", path).safe_open(path, framework="np") as file:
        return {name: partial(_safetensors_array, path, name) for name in list(file.keys())}


def _safetensors_array(path: Path, name: str) -> Stored:
    @contextmanager
    def opened() -> Iterator[Any]:  # anew for every block: what was read stays mapped, and counts, until it is closed
        with _package("safetensors", path).safe_open(path, framework="np") as file:
            yield file.get_slice(name)

    with opened() as tensor:
        shape, kind = tuple(tensor.get_shape()), tensor.get_dtype()
    if kind not in TENSORS:
        raise InputError(f"{path}: expected {name} in one of {', '.join(TENSORS)}, got {kind}")
    return _sliced(path, opened, shape, np.dtype(TENSORS[kind]), None, None)


def _sliced(
    path: Path, opened: Callable[[], AbstractContextManager[Any]], shape: tuple, dtype: np.dtype, dims: Any, chunks: Any
) -> Stored:
    """An array of a library that reads slices. Chunks, which are read whole, must not be too large."""
    chunk = dtype.itemsize * math.prod(chunks or ())
    if chunk > LARGEST_ROW:
        raise UnsafeInputError(f"{path}: expected chunks of at most {LARGEST_ROW} bytes, got {chunk}; store it in smaller ones")

    def read(rows: int) -> Iterator[np.ndarray]:
        for i in range(0, shape[0] if shape else 1, rows):
            with opened() as array:
                block = array[i : min(i + rows, shape[0])] if shape else np.asarray(array[()])[None]
            yield np.asarray(block, dtype)

    return Stored("", tuple(shape), dtype, read, dims=tuple(dims) if dims else None, unit=chunks[0] if chunks else 1)


def _csv(path: Path) -> Arrays:
    """Without a header a matrix; as outputs, a row is a network, a column a token, and there is one coordinate."""
    if path.stat().st_size > LARGEST_CSV:
        raise UnsafeInputError(f"{path}: expected at most {LARGEST_CSV} bytes of text, got {path.stat().st_size}; use .npy")
    with open(path, encoding="utf-8-sig") as file:
        header = [word.strip().lower() for word in file.readline().split(",")] == LONG_FORM
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no numbers at all is only a warning
        table = np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(header), encoding="utf-8-sig")
    if header:
        return {"outputs": partial(in_memory, "", _from_long_form(path, table))}
    return {"": partial(in_memory, "", table), "outputs": partial(in_memory, "", table[:, :, None])}


def _from_long_form(path: Path, table: np.ndarray) -> np.ndarray:
    """Outputs (network, token, coordinate) from rows of three labels and a number, in any order."""
    if not np.all(table[:, :3] == np.round(table[:, :3])):
        raise InputError(f"{path}: expected whole numbers for network, token and coordinate, got others")
    labels, indices = zip(*(np.unique(column, return_inverse=True) for column in table[:, :3].T), strict=True)
    shape = tuple(map(len, labels))
    position = (indices[0] * shape[1] + indices[1]) * shape[2] + indices[2]
    if len(table) != math.prod(shape) or len(table) != len(np.unique(position)):
        claimed = f"{shape[0]} networks x {shape[1]} tokens x {shape[2]} coordinates"
        raise InputError(f"{path}: expected {claimed}, each once, got {len(table)} rows")
    return table[np.argsort(position), 3].reshape(shape)


def _package(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise InputError(f"{path}: expected the package {name} to read it, got none; pip install 'hierattn[files]'") from None


def _check_inflation(path: Path, claimed: int, held: int) -> None:
    if claimed > max(INFLATION * held, UNREMARKABLE):
        raise UnsafeInputError(f"{path}: expected real numbers, got {held} bytes that claim to be {claimed}; is it a bomb?")


READERS: dict[str, Callable[[Path], Arrays]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".nc": _nc,
    ".zarr": _zarr,
    ".safetensors": _safetensors,
    ".csv": _csv,
}
