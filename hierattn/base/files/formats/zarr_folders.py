"""Zarr (.zarr): a folder, or a file, with one array or with several that have names."""

import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from hierattn.base.errors import InputError
from hierattn.base.files.formats.protocol import Arrays, check_inflation, package, sliced
from hierattn.base.files.stored import Stored

SUFFIXES, FOLDERS = (".zarr",), True


def arrays(path: Path) -> Arrays:
    """The arrays of a group, or one without a name."""
    zarr = package("zarr", path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files that are not zarr's
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": partial(_array, path, root)}
        return {name: partial(_array, path, array) for name, array in root.arrays()}


def _array(path: Path, array: Any) -> Stored:
    if "pickle" in str((array.filters, array.compressors)).lower():
        raise InputError(f"{path}: expected numbers, got pickled objects")
    dims = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    check_inflation(path, array.nbytes, array.nbytes_stored())
    return sliced(path, partial(nullcontext, array), array.shape, array.dtype, dims, array.chunks)
