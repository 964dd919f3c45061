"""netCDF 4 (.nc): variables with names for their axes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hierattn.base.errors import UnsafeInputError
from hierattn.base.files.formats.protocol import Arrays, check_inflation, sliced
from hierattn.base.files.stored import Stored

SUFFIXES, FOLDERS = (".nc",), False


def arrays(path: Path) -> Arrays:
    """The variables of a file."""
    import h5netcdf

    with h5netcdf.File(path, "r", phony_dims="sort") as file:
        return {name: partial(_array, path, name) for name in file.variables}


def _array(path: Path, name: str) -> Stored:
    import h5netcdf
    import h5py

    with h5py.File(path, "r") as raw, h5netcdf.File(raw, "r", phony_dims="sort") as file:
        linked = not isinstance(raw.get(name, getlink=True), h5py.HardLink)
        if linked or raw[name].is_virtual or raw[name].external:
            raise UnsafeInputError(f"{path}: expected {name} in the file itself, got a link to elsewhere")
        shape, dtype, dims, chunks = raw[name].shape, raw[name].dtype, file[name].dimensions, raw[name].chunks
        check_inflation(path, dtype.itemsize * math.prod(shape), raw[name].id.get_storage_size())

    @contextmanager
    def opened() -> Iterator[Any]:
        with h5py.File(path, "r") as raw:
            yield raw[name]

    return sliced(path, opened, shape, dtype, dims, chunks)
