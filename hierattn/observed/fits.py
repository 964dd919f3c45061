"""Fits read back from the files that `fit` wrote: the tree, the outputs behind it, and the layer it was made for."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hierattn.base.errors import InputError
from hierattn.base.files.reading import suspicion
from hierattn.base.files.stored import in_memory
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import NAMES, SCALES, layer_from
from hierattn.observed.observations import Observations
from hierattn.observed.statistics import reduced

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


def observations_of(tree: "DataTree") -> Observations:
    """The outputs behind a fit, as far as it keeps them."""
    constants, y = tree["constant_data"].to_dataset(), np.asarray(tree["observed_data"]["y"])
    layer = layer_of(tree)
    statistics = reduced(in_memory("outputs", y), len(y))
    if "S" in constants:  # of all coordinates
        statistics = statistics._replace(S=np.asarray(constants["S"]), coordinates=int(constants["coordinates"]))
    known = "K" in constants
    return Observations.from_statistics(
        statistics._replace(sha256=str(tree.attrs.get("outputs_sha256", statistics.sha256))),
        np.asarray(constants["K"]) if known else None,
        tokens=np.asarray(constants["tokens"]) if known else None,
        heads=layer.heads,
        mask=layer.mask,
        source=str(tree.attrs["source"]),
    )


def layer_of(tree: "DataTree") -> Architecture:
    """The layer that a fit was made for; scales are in the posterior, and those of a file that has none are 1.

    Fits of version 0.1 kept neither scales nor score function nor scaling: theirs are softmax and the usual scaling.
    """
    constants = tree["constant_data"].to_dataset()
    told = dict.fromkeys(SCALES, 1.0) | {name: np.asarray(constants[name]) for name in NAMES if name in constants}
    layer = layer_from(told, "constant_data of the fit")
    assert layer is not None  # scales are there
    return layer
