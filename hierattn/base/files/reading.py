"""Files in, read with suspicion: the arrays of a file, had block by block, and one line that names it for whatever is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.files.formats import csv_files, netcdf, numpy_files, safetensors_files, zarr_folders
from hierattn.base.files.formats.protocol import Arrays, Format
from hierattn.base.files.stored import Stored

FORMATS: tuple[Format, ...] = (numpy_files, netcdf, zarr_folders, safetensors_files, csv_files)
READERS = {suffix: kind for kind in FORMATS for suffix in kind.SUFFIXES}


def arrays(path: str | Path) -> Arrays:
    """What a file holds: name -> the array when it is asked for. An array without a name is called ""."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: expected a file, got none; check the path")
    suffix = path.suffix.lower()
    if path.is_dir() and not (suffix in READERS and READERS[suffix].FOLDERS):
        raise InputError(f"{path}: expected a file, got a directory")
    if suffix not in READERS:
        raise InputError(f"{path}: expected a file ending in {', '.join(READERS)}, got {suffix or 'no ending'}")
    if not path.is_dir() and not path.is_file():
        raise InputError(f"{path}: expected a file, got a device or a pipe")
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path}: expected an array, got an empty file")
    with suspicion(path):
        return READERS[suffix].arrays(path)


def find(path: str | Path, name: str) -> Stored:
    """The array called `name`, or one that has no name at all; one of another name is something else."""
    held = arrays(path)
    if name not in held and "" not in held:
        remedy = f"numpy.savez(FILE, {name}=...) writes one" if Path(path).suffix.lower() == ".npz" else "give it this name"
        raise InputError(f"{path}: expected an array called {name}, got {', '.join(sorted(held)) or 'none'}; {remedy}")
    with suspicion(Path(path)):
        stored = held[name if name in held else ""]()

    def read(rows: int) -> Iterator[np.ndarray]:
        with suspicion(Path(path)):
            yield from stored.read(rows)

    return replace(stored, label=f"{name} in {path}", source=Path(path).name, read=read)


def read_array(path: str | Path, name: str) -> np.ndarray:
    """The array called `name`, or the one without a name, whole."""
    return find(path, name).whole()


@contextmanager
def suspicion(path: Path) -> Iterator[None]:
    """Whatever goes wrong while a library reads this file is the file's fault, and said in one line."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as closed:
        raise InputError(f"{path}: expected a file that can be opened, got: {closed.strerror}") from closed
    except Exception as broken:
        reason = "pickled objects" if "pickle" in str(broken).lower() else "one that is damaged or of another kind"
        raise InputError(f"{path}: expected a {path.suffix} file of numbers, got {reason}") from broken
