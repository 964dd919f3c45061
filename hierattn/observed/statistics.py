"""Outputs reduced to what the law needs of them, block by block: files may be larger than memory, models run one by one.

Given its scores a network's coordinates are independent Gaussians, so that of the outputs Y, (token, coordinate), of a
network the law needs only S = Y Y' (THEORY section 9).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from hierattn.base.errors import unusable
from hierattn.base.files.stored import Stored
from hierattn.base.provenance import begin_digest

KEPT = 2**26  # bytes of raw outputs that are kept
SMALLEST, LARGEST = 1e-100, 1e100  # sizes of outputs whose squares are numbers, and can be summed


class Statistics(NamedTuple):
    """What is left of outputs (network, token, coordinate).

    - S: the sum of y y' over coordinates, in float64
    - coordinates: how many were summed
    - outputs: the outputs themselves, of leading coordinates
    - constant_tokens: tokens that never vary
    - sha256: a hash of all outputs
    """

    S: Float[np.ndarray, "network s s"]
    coordinates: int
    outputs: Float[np.ndarray, "network s kept"]
    constant_tokens: tuple[int, ...]
    sha256: str

    def first(self, networks: int) -> "Statistics":
        """Those of the first networks; the hash remains that of all."""
        return self._replace(S=self.S[:networks], outputs=self.outputs[:networks])

    def check(self, label: str) -> None:
        """Statistics that outputs can have had."""
        (networks, s, *_), kept = self.S.shape, self.outputs.shape[-1]
        if self.S.shape != (networks, s, s) or self.outputs.shape[:-1] != (networks, s) or not 1 <= kept <= self.coordinates:
            shapes = f"S {self.S.shape}, outputs {self.outputs.shape}, {self.coordinates} coordinates"
            raise unusable(label, "S (network, token, token) beside outputs (network, token, coordinate)", shapes)
        if not (np.isfinite(self.S).all() and np.isfinite(self.outputs).all()):
            raise unusable(label, "finite numbers", "NaN or infinity")
        if not np.allclose(self.S, self.S.swapaxes(1, 2), rtol=1e-9, atol=0):
            raise unusable(label, "S = Y Y', which is symmetric", "one that is not")
        if not self.S.any():
            raise unusable(label, "outputs that vary", f"zeros only in {networks} networks")


class Reduction:
    """Statistics in the making: networks are added in their order, a block at a time.

    - shape: (network, token, coordinate) of all that will come
    - dtype: of the outputs
    - kept: leading coordinates that are kept at most; as many as fit into KEPT bytes, and at least one
    """

    def __init__(self, shape: tuple[int, int, int], dtype: np.dtype, label: str, kept: int | None = None) -> None:
        networks, s, self.coordinates = shape
        self.label, self.dtype = label, dtype.newbyteorder("=")
        exact = self.dtype if self.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        room = max(1, KEPT // (networks * s * exact.itemsize))
        self.S = np.empty((networks, s, s))
        self.outputs = np.empty((networks, s, min(self.coordinates, room, kept or room)), exact)
        self.lowest, self.highest = np.full(s, np.inf), np.full(s, -np.inf)
        self.sha256, self.done = begin_digest(shape, self.dtype), 0

    def add(self, block: Num[np.ndarray, "some s coordinate"]) -> None:
        """The outputs of the next networks, all of them finite."""
        block = np.ascontiguousarray(block, self.dtype)
        rows = slice(self.done, self.done + len(block))
        self.sha256.update(block)
        self.outputs[rows] = block[:, :, : self.outputs.shape[-1]]
        self.lowest = np.minimum(self.lowest, block.min(axis=(0, 2)))
        self.highest = np.maximum(self.highest, block.max(axis=(0, 2)))
        Y = block.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            self.S[rows] = Y @ Y.swapaxes(-1, -2)
        self.done = rows.stop

    def statistics(self) -> Statistics:
        """All of it, once everything was added."""
        lowest, highest = self.lowest, self.highest
        if lowest.min() == highest.max():
            raise unusable(self.label, "outputs that vary", f"one value, {lowest[0]:g}")
        size = max(-lowest.min(), highest.max())
        if not SMALLEST < size < LARGEST:
            raise unusable(self.label, f"outputs between {SMALLEST:g} and {LARGEST:g} in size", f"{size:g}", "rescale them")
        constant = tuple(np.flatnonzero(lowest == highest).tolist())
        return Statistics(self.S, self.coordinates, self.outputs, constant, self.sha256.hexdigest())


def reduced(y: Stored, networks: int) -> Statistics:
    """The first networks of stored outputs, in one passage over them."""
    reduction = Reduction((networks, *y.shape[1:]), y.dtype, y.label)  # type: ignore[arg-type]
    for block in y.finite_blocks(networks):
        reduction.add(block)
    return reduction.statistics()
