"""Files out: results written whole or not at all, with their provenance."""

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hierattn.base.errors import InputError, UnsafeInputError


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
    path = check_new(path, force)
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


def check_new(path: str | Path, force: bool) -> Path:
    """The path of a file that may be written."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a folder to write in, got none; make {path.parent} first")
    if path.is_dir():
        raise InputError(f"{path}: expected a file name, got a directory")
    if path.exists() and not force:
        raise InputError(f"{path}: expected a new file, got one that exists; choose another name or use --force")
    return path
