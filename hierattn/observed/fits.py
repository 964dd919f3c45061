"""Fits read back from the files that `fit` wrote."""

from pathlib import Path
from typing import TYPE_CHECKING

from hierattn.base.errors import InputError
from hierattn.base.files.reading import suspicion

if TYPE_CHECKING:
    from xarray import DataTree

GROUPS = {"posterior", "observed_data", "constant_data", "posterior_predictive"}
ATTRIBUTES = {"model", "verdict", "reasons", "parameters", "source"}


def is_fit(path: str | Path) -> bool:
    """Is this a file of a fit? (Whatever else it is, others will say.)"""
    import h5py

    if not Path(path).is_file() or not h5py.is_hdf5(path):
        return False
    with suspicion(Path(path)), h5py.File(path) as file:
        return "posterior" in file


def read_fit(path: str | Path) -> "DataTree":
    """The fit in a file."""
    import arviz

    if not Path(path).exists():
        raise InputError(f"{path}: expected a file, got none; check the path")
    if not is_fit(path):
        raise InputError(f"{path}: expected a fit, got a file without a posterior; make one with hierattn fit")
    with suspicion(Path(path)):
        tree = arviz.from_netcdf(path)
    lacking = sorted((GROUPS - set(tree.children)) | (ATTRIBUTES - set(tree.attrs)))
    if lacking:
        raise InputError(f"{path}: expected a fit of hierattn, got one without {', '.join(lacking)}")
    return tree
