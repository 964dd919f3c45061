"""What a user brings: outputs of attention layers, as arrays or files, checked and reduced to sufficient statistics.

Given its scores a network's coordinates are independent Gaussians, so that of the outputs Y, (token, coordinate), of a
network the law needs only S = Y Y' (THEORY section 9). It is summed up block by block: a file may be larger than memory.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hierattn.base.errors import InputError, unusable
from hierattn.base.files import reading as files
from hierattn.base.files.stored import Stored
from hierattn.base.provenance import begin_digest
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import layer_in
from hierattn.observed.kernels import Kernels, Promised, as_stored, check_size, is_word, promised

DIMS = ("network", "token", "coordinate")
MASKS = {"causal": "causal", "none": None}  # words that are no file's name
KEPT = 2**26  # bytes of raw outputs that are kept
SMALLEST, LARGEST = 1e-100, 1e100  # sizes of outputs whose squares are numbers, and can be summed


@dataclass(frozen=True, init=False, eq=False)
class Observations:
    """Outputs (network, token, coordinate) of attention layers, and what is known of the layers.

    S                (network, s, s), the sum of y y' over coordinates, in float64
    coordinates      n_obs, how many were summed
    kernel           K over its t tokens: (t, t), (network, t, t), or None: to be inferred
    kernel_origin    "given", "inputs" (X X' / n), "identity" or "inferred"
    tokens           (s,), which of the kernel's tokens the outputs hold
    heads, mask      of the layer, where they are known; the mask is "causal" or boolean (t, t)
    layer            all of it, if it is known, but for the mask: its scales too, so that the law is fixed in advance
    outputs          the outputs themselves, of as many leading coordinates as fit into KEPT bytes, and at least one
    constant_tokens  tokens (of the outputs) that never vary
    source, sha256   where the outputs are from, and a hash of those that were read

    outputs   an array, (network, token, coordinate)
    kernel    an array, "identity" (of s tokens), "identity:t", or "inferred", which is the default
    inputs    instead of a kernel: (network, token, width) for a kernel each, or (token, width) for one
    tokens    needed where the outputs do not hold all of the kernel's tokens in order
    networks  use the first so many only
    """

    S: Float[np.ndarray, "network s s"]
    coordinates: int
    kernel: Kernels
    kernel_origin: str
    tokens: Int[np.ndarray, " s"]
    heads: int | None
    mask: Any
    layer: Architecture | None
    outputs: Float[np.ndarray, "network s kept"]
    constant_tokens: tuple[int, ...]
    source: str
    sha256: str

    def __init__(
        self,
        outputs: Any,
        kernel: Any = None,
        *,
        inputs: Any = None,
        tokens: Any = None,
        heads: Any = None,
        mask: Any = None,
        layer: Architecture | None = None,
        networks: int | None = None,
    ) -> None:
        y = as_stored("outputs", outputs)
        available, s, coordinates = _checked_shape(y)
        M = available if networks is None else _checked_networks(networks, available, y.label)
        K = promised(kernel, inputs, s, M, available)
        known = {
            "tokens": _checked_tokens(tokens, y, K),
            "heads": _checked_heads(heads) if heads is not None else layer and layer.heads,
            "mask": _checked_mask(mask, K.tokens),
            "layer": layer,
        }
        if layer is not None and known["heads"] != layer.heads:
            raise unusable("heads", f"{layer.heads}, as the layer has", known["heads"], "leave it out")
        check_size(y.label, M, s)
        self._set(coordinates=coordinates, kernel=K.read(), kernel_origin=K.origin, source=y.source, **known, **_reduced(y, M))

    @property
    def networks(self) -> int:
        """M, the number of networks."""
        return len(self.S)

    @property
    def s(self) -> int:
        """Tokens that the outputs hold."""
        return self.S.shape[-1]

    @property
    def complete(self) -> bool:
        """Does `outputs` hold every coordinate?"""
        return self.outputs.shape[-1] == self.coordinates

    @property
    def scale(self) -> float:
        """Root mean square of the outputs."""
        return float(np.sqrt(np.mean(self.token_scales**2)))

    @property
    def token_scales(self) -> Float[np.ndarray, " s"]:
        """Root mean square of each token's outputs."""
        return np.sqrt(np.einsum("mii->i", self.S) / (self.networks * self.coordinates))

    def first(self, networks: int) -> "Observations":
        """The first so many networks. `sha256` remains that of the outputs they were taken from."""
        n = _checked_networks(networks, self.networks, "networks")
        if not self.S[:n].any():
            raise unusable("outputs", "outputs that vary", f"zeros only in the first {n} networks")
        shorter = object.__new__(Observations)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        one_each = self.kernel is not None and self.kernel.ndim == 3
        cut = {name: values[name][:n] for name in ("S", "outputs", *(["kernel"] if one_each else []))}
        shorter._set(**values | cut)
        return shorter

    def __repr__(self) -> str:
        size = f"networks={self.networks}, tokens={self.s}, coordinates={self.coordinates}"
        return f"Observations({size}, kernel={self.kernel_origin}, source={self.source!r})"

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def read(
    path: str | Path,
    kernel: Any = None,
    *,
    inputs: Any = None,
    tokens: Any = None,
    heads: int | None = None,
    mask: Any = None,
    networks: int | None = None,
) -> Observations:
    """Observations from a .npy, .npz, .nc, .zarr, .safetensors or .csv file that holds `outputs`.

    `inputs` or `kernel`, `tokens`, `heads`, `mask` and a layer's description (`hierattn.described`) are used if they are there
    too; an argument, an array or the name of another file, comes before them (mask="none" and kernel="inferred" before those of
    the file). Heads must agree.
    """
    held = files.arrays(path)

    def beside(name: str, argument: Any) -> Any:
        if isinstance(argument, (str, Path)):
            return files.find(argument, name)
        return files.find(path, name) if argument is None and name in held else argument

    if kernel is None and inputs is None:
        kernel, inputs = beside("kernel", None), beside("inputs", None)
    stated = beside("heads", None)
    if stated is not None and heads not in (None, H := _checked_heads(stated)):
        raise unusable("heads", f"{H}, as {path} says", heads, "leave it out")
    return Observations(
        files.find(path, "outputs"),
        kernel if kernel is None or is_word(kernel) else beside("kernel", kernel),
        inputs=None if inputs is None else beside("inputs", inputs),
        tokens=beside("tokens", tokens),
        heads=stated if heads is None else heads,
        mask=MASKS[mask] if isinstance(mask, str) and mask in MASKS else beside("mask", mask),
        layer=layer_in(path),
        networks=networks,
    )


def _reduced(y: Stored, networks: int) -> dict[str, Any]:
    """S, leading coordinates, constant tokens and hash, in one passage over the outputs."""
    _, s, C = y.shape
    kind = y.dtype.newbyteorder("=")
    exact = kind if kind in (np.float32, np.float64) else np.dtype(np.float64)
    kept = min(C, max(1, KEPT // (networks * s * exact.itemsize)))
    S, outputs = np.empty((networks, s, s)), np.empty((networks, s, kept), exact)
    lowest, highest = np.full(s, np.inf), np.full(s, -np.inf)
    sha256, done = begin_digest((networks, s, C), kind), 0
    for block in y.finite_blocks(networks):
        rows = slice(done, done + len(block))
        sha256.update(np.ascontiguousarray(block))
        outputs[rows] = block[:, :, :kept]
        lowest, highest = np.minimum(lowest, block.min(axis=(0, 2))), np.maximum(highest, block.max(axis=(0, 2)))
        Y = block.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            S[rows] = Y @ Y.swapaxes(-1, -2)
        done = rows.stop
    if lowest.min() == highest.max():
        raise unusable(y.label, "outputs that vary", f"one value, {lowest[0]:g}")
    size = max(-lowest.min(), highest.max())
    if not SMALLEST < size < LARGEST:
        raise unusable(y.label, f"outputs between {SMALLEST:g} and {LARGEST:g} in size", f"{size:g}", "rescale them")
    constant = tuple(np.flatnonzero(lowest == highest).tolist())
    return {"S": S, "outputs": outputs, "constant_tokens": constant, "sha256": sha256.hexdigest()}


def _checked_shape(y: Stored) -> tuple[int, int, int]:
    y.check_real()
    if len(y.shape) != 3:
        raise unusable(y.label, "shape (network, token, coordinate)", y.shape)
    if y.dims is not None and set(y.dims) == set(DIMS) and y.dims != DIMS:
        raise unusable(y.label, f"axes {', '.join(DIMS)}", f"them swapped: {', '.join(y.dims)}", "transpose it")
    if 0 in y.shape:
        raise unusable(y.label, "at least one network, token and coordinate", f"shape {y.shape}")
    return y.shape


def _checked_networks(networks: int, available: int, label: str) -> int:
    if not isinstance(networks, (int, np.integer)) or isinstance(networks, bool) or not 1 <= networks <= available:
        remedy = f"{label} has {available}" if label != "networks" else ""
        raise unusable("networks", f"a whole number from 1 to {available}", repr(networks), remedy)
    return int(networks)


def _checked_tokens(tokens: Any, y: Stored, K: Promised) -> np.ndarray:
    """Indices of the kernel's tokens; without them, all in order, and a size that does not fit is an error."""
    s, t = y.shape[1], K.tokens
    if tokens is None and s != t:
        remedy = "say with tokens which of the kernel's they are"
        for axis, name in ((2, "last"), (0, "first")):
            if y.shape[axis] == t:
                remedy = f"axes swapped? its {name} axis has {t}: use numpy.swapaxes(outputs, 1, {axis}), or {remedy}"
                break
        raise unusable(y.label, f"shape (network, {t} tokens as in the kernel, coordinate)", y.shape, remedy)
    if tokens is None:
        return np.arange(s)
    given = as_stored("tokens", tokens)
    indices = given.whole()
    if not K.certain:
        raise unusable(given.label, "a kernel whose tokens they are", "none", "give it, or 'identity:TOKENS'")
    if indices.dtype.kind not in "iu" or indices.shape != (s,):
        raise unusable(
            given.label, f"{s} whole numbers, one for each token of the outputs", f"{indices.dtype} of shape {indices.shape}"
        )
    if indices.min() < 0 or indices.max() >= t or len(set(indices.tolist())) < s:
        raise unusable(given.label, f"different numbers from 0 to {t - 1}, the kernel's tokens", indices.tolist())
    return indices.astype(int)


def _checked_heads(heads: Any) -> int:
    stored = as_stored("heads", heads)
    number = stored.whole()
    if number.size != 1 or number.dtype.kind not in "iu" or number.item() < 1:
        raise unusable(stored.label, "a positive whole number", repr(number.tolist()))
    return int(number.item())


def _checked_mask(mask: Any, t: int) -> Any:
    if mask is None:
        return None
    stored = as_stored("mask", mask)
    array = stored.whole()
    if array.dtype.kind in "iu" and np.isin(array, (0, 1)).all():
        array = array.astype(bool)
    try:
        layer = Architecture(mask=array.item() if array.dtype.kind == "U" and array.size == 1 else array)
        layer.allowed(t, t)
    except InputError as wrong:
        raise InputError(str(wrong).replace("mask", stored.label, 1)) from None
    return layer.mask
