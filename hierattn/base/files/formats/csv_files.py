"""Text (.csv): a matrix without a header, or one number a line under `network,token,coordinate,output`."""

import math
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from hierattn.base.errors import InputError, UnsafeInputError
from hierattn.base.files.formats.protocol import Arrays
from hierattn.base.files.stored import in_memory

SUFFIXES, FOLDERS = (".csv",), False
LONG_FORM = ["network", "token", "coordinate", "output"]  # header of a file with one number a line
LARGEST_CSV = 2**27  # bytes of text, which is read whole


def arrays(path: Path) -> Arrays:
    """Without a header a matrix; as outputs, each row is a network and each column a token, with one coordinate."""
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
