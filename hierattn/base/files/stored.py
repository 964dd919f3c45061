"""An array that is had block by block along its first axis, from a file or from memory: it may be larger than memory."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hierattn.base.errors import UnsafeInputError, as_array, unusable

BLOCK = 2**22  # bytes read at a time
LARGEST_ROW = 2**27  # bytes of what can only be read at once: one network, or what a file compresses together
TOO_LARGE = 2**31  # bytes of an array read whole


@dataclass(frozen=True, eq=False)
class Stored:
    """An array, not yet read.

    - label: how messages call it: `outputs`, or `outputs in x.npz`
    - read: read(rows) gives the array in blocks of so many rows
    - source: the name of its file, or "array"
    - dims: names of its axes, where the file has them
    - unit: rows that the file stores together: blocks of whole units are read once
    """

    label: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int], Iterator[np.ndarray]]
    source: str = "array"
    dims: tuple[str, ...] | None = None
    unit: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.dtype.itemsize * math.prod(self.shape)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The first `rows` rows in blocks of some BLOCK bytes, in this machine's byte order."""
        left = rows
        for block in self.read(self._rows_at_once()):
            yield block[:left].astype(block.dtype.newbyteorder("="), copy=False)
            left -= len(block)
            if left <= 0:
                return

    def finite_blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The same, with an error at the end, where all have been counted, if numbers are NaN or infinite."""
        nans = infinities = done = 0
        first: tuple[int, ...] | None = None
        for block in self.blocks(rows):
            wrong = ~np.isfinite(block)
            if wrong.any():
                network, *rest = np.argwhere(wrong)[0].tolist()
                first = first or (done + network, *rest)
                nans += int(np.isnan(block).sum())
                infinities += int(np.isinf(block).sum())
            if first is None:
                yield block
            done += len(block)
        if first is not None:
            raise unusable(self.label, "finite numbers", f"{nans} NaN and {infinities} infinite, the first at {first}")

    def whole(self) -> np.ndarray:
        """The array itself, if it can be held."""
        if self.nbytes > TOO_LARGE:
            raise UnsafeInputError(f"{self.label}: expected at most {TOO_LARGE} bytes, got {self.nbytes} in shape {self.shape}")
        rows = self.shape[0] if self.shape else 1
        parts = list(self.blocks(rows)) if rows else []
        return np.concatenate([*parts, np.empty((0, *self.shape[1:]), self.dtype)]).reshape(self.shape)

    def check_real(self) -> None:
        """Numbers of which the law can speak."""
        if self.dtype.kind not in "fiu":
            names = {"O": "Python objects", "V": "records", "U": "text", "S": "text", "T": "text"}
            raise unusable(self.label, "real numbers", names.get(self.dtype.kind, str(self.dtype)))

    def _rows_at_once(self) -> int:
        row = max(1, self.dtype.itemsize * math.prod(self.shape[1:]))
        if row > LARGEST_ROW:
            limit = f"at most {LARGEST_ROW} bytes along all axes but the first"
            raise UnsafeInputError(f"{self.label}: expected {limit}, got {row} in shape {self.shape}; give fewer coordinates")
        rows = max(1, BLOCK // row)
        if rows >= self.unit:
            return rows - rows % self.unit
        return self.unit if self.unit * row <= LARGEST_ROW else rows


def in_memory(label: str, value: Any) -> Stored:
    """An array (or what NumPy makes one of) that is there already; xarray's have names for their axes."""
    array = as_array(label, value, kind=None)
    array = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    rows, dims = np.atleast_1d(array), getattr(value, "dims", None)

    def read(count: int) -> Iterator[np.ndarray]:
        return (rows[i : i + count] for i in range(0, len(rows), count))

    return Stored(label, array.shape, array.dtype, read, dims=dims if isinstance(dims, tuple) else None)
