"""Files: arrays read with suspicion, results written whole or not at all, with their provenance."""

import hashlib
import math
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hierattn import __version__
from hierattn.errors import InputError, UnsafeInputError

TOO_LARGE = 2**31  # bytes of an array read whole


def read_array(path: str | Path, name: str) -> np.ndarray:
    """The array of a .npy, .npz, .nc or .csv file; one that holds several must call it `name`."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: expected a file, got none; check the path")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, got a directory")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: expected an array, got an empty file")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".nc": _read_nc, ".csv": _read_csv}
    if path.suffix not in readers:
        raise InputError(f"{path}: expected a file ending in {', '.join(readers)}, got {path.suffix or 'no ending'}")
    try:
        return readers[path.suffix](path, name)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as broken:
        reason = "pickled objects" if "pickle" in str(broken).lower() else "one that is damaged or of another kind"
        raise InputError(f"{path}: expected a {path.suffix} file of numbers, got {reason}") from None


def write_netcdf(
    path: str | Path,
    shapes: dict[str, dict[str, int]],
    parts: Iterable[dict[str, Any]],
    attributes: dict[str, Any],
    force: bool,
) -> None:
    """Write variables part by part along their first dimension; shapes: variable -> dimension -> length, in order."""
    import h5netcdf

    at_least = 4 * sum(math.prod(dims.values()) for dims in shapes.values())
    with whole_file(path, force, at_least) as temporary, h5netcdf.File(temporary, "w") as file:
        for dims in shapes.values():
            file.dimensions.update({dim: length for dim, length in dims.items() if dim not in file.dimensions})
        done = dict.fromkeys(shapes, 0)
        for part in parts:
            for name, values in part.items():
                if name not in file.variables:
                    file.create_variable(name, tuple(shapes[name]), values.dtype)
                file.variables[name][done[name] : done[name] + len(values)] = np.asarray(values)
                done[name] += len(values)
        file.attrs.update(attributes)


@contextmanager
def whole_file(path: str | Path, force: bool, at_least: int = 0) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place once written and flushed, and never stays half done.

    Refused at once where the disk has not the bytes it will need at least.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a folder to write in, got none; make {path.parent} first")
    if path.is_dir():
        raise InputError(f"{path}: expected a file name, got a directory")
    if path.exists() and not force:
        raise InputError(f"{path}: expected a new file, got one that exists; choose another name or use --force")
    free = shutil.disk_usage(path.parent).free
    if at_least > free:
        raise UnsafeInputError(
            f"{path}: expected at most the {free:.2g} bytes that are free, got {at_least:.2g}; ask for fewer"
        )
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def provenance(seed: int, **more: Any) -> dict[str, Any]:
    """What made a result: command, seed, versions. No time and no machine, so that equal runs write equal bytes."""
    versions = {f"version_{name}": version(name) for name in ("jax", "jaxlib", "numpy", "numpyro")}
    command = " ".join(["hierattn", *sys.argv[1:]])
    return {"version_hierattn": __version__, **versions, "command": command, "seed": seed, **more}


def digest(array: np.ndarray) -> str:
    """A hash of an array's numbers and shape."""
    return hashlib.sha256(repr((array.shape, str(array.dtype))).encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


def _read_npy(path: Path, name: str) -> np.ndarray:
    with open(path, "rb") as file:
        _check_header(file, path, path.stat().st_size)
        file.seek(0)
        return np.load(file, allow_pickle=False)


def _read_npz(path: Path, name: str) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if any(".." in Path(member).parts or Path(member).is_absolute() for member in members):
            raise UnsafeInputError(f"{path}: expected plain array names, got one that leaves the archive")
        if name not in members and len(members) != 1:
            raise InputError(f"{path}: expected an array called {name}, got {', '.join(sorted(members)) or 'none'}")
        member = members.get(name) or next(iter(members.values()))
        if member.file_size > TOO_LARGE:
            raise UnsafeInputError(f"{path}: expected at most {TOO_LARGE} bytes, got an array of {member.file_size}")
        with archive.open(member) as file:
            _check_header(file, path, member.file_size)
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def _check_header(file: Any, path: Path, size: int) -> None:
    """The header must not claim more than the file holds: NumPy would allocate first and look later."""
    major = np.lib.format.read_magic(file)[0]
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise InputError(f"{path}: expected numbers, got pickled objects")
    claimed = int(np.prod([float(length) for length in shape])) * dtype.itemsize
    if claimed > TOO_LARGE:
        raise UnsafeInputError(f"{path}: expected at most {TOO_LARGE} bytes, got a header that claims {claimed}")
    held = size - file.tell()
    if claimed > held:
        raise InputError(f"{path}: expected {claimed} bytes of numbers, got {held}; is it truncated?")


def _read_nc(path: Path, name: str) -> np.ndarray:
    import h5netcdf

    with h5netcdf.File(path, "r") as file:
        if name not in file.variables and len(file.variables) != 1:
            raise InputError(f"{path}: expected an array called {name}, got {', '.join(file.variables) or 'none'}")
        variable = file.variables[name if name in file.variables else next(iter(file.variables))]
        if variable.dtype.itemsize * np.prod([float(length) for length in variable.shape]) > TOO_LARGE:
            raise UnsafeInputError(f"{path}: expected at most {TOO_LARGE} bytes, got shape {variable.shape}")
        return np.asarray(variable[...])


def _read_csv(path: Path, name: str) -> np.ndarray:
    if path.stat().st_size > TOO_LARGE:
        raise UnsafeInputError(f"{path}: expected at most {TOO_LARGE} bytes, got {path.stat().st_size}")
    return np.loadtxt(path, delimiter=",", ndmin=2)
