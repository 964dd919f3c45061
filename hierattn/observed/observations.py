"""What a user brings: outputs of attention layers, as arrays or files, checked and reduced to sufficient statistics."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int

from hierattn.base.errors import unusable
from hierattn.base.files import reading as files
from hierattn.layer.architecture import Architecture
from hierattn.layer.record import layer_in
from hierattn.observed.checks import (
    DIMS,
    check_mask_agrees,
    checked_heads,
    checked_networks,
    checked_shape,
    is_mask_word,
    setting,
)
from hierattn.observed.kernels import Kernels, as_stored, check_size, is_word, promised
from hierattn.observed.statistics import Statistics, reduced

__all__ = ["DIMS", "Observations", "read"]


@dataclass(frozen=True, init=False, eq=False)
class Observations:
    """Outputs (network, token, coordinate) of attention layers, and what is known of the layers.

    - S: (network, s, s), the sum of y y' over coordinates, in float64
    - coordinates: n_obs, how many were summed
    - kernel: K over its t tokens: (t, t), (network, t, t), or None: to be inferred
    - kernel_origin: "given", "inputs" (X X' / n), "identity" or "inferred"
    - tokens: (s,), which of the kernel's tokens the outputs hold
    - heads, mask: of the layer, where they are known; the mask is "causal" or boolean (t, t)
    - layer: all of it, if it is known, its scales too, so that the law is fixed in advance; heads and mask are its own
    - outputs: the outputs themselves, of as many leading coordinates as are kept, and at least one
    - constant_tokens: tokens (of the outputs) that never vary
    - source, sha256: where the outputs are from, and a hash of those that were read

    They are made from

    - outputs: an array, (network, token, coordinate)
    - kernel: an array, "identity" (of s tokens), "identity:t", or "inferred", which is the default
    - inputs: instead of a kernel: (network, token, width) for a kernel each, or (token, width) for one
    - tokens: needed where the outputs do not hold all of the kernel's tokens in order
    - mask: "causal", boolean (t, t), or "none", which takes off the layer's; another than the layer's is refused
    - networks: use the first so many only
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
        available, s, _ = checked_shape(y)
        M = available if networks is None else checked_networks(networks, available, y.label)
        K = promised(kernel, inputs, s, M, available)
        known = setting(y.label, y.shape, K, tokens, heads, mask, layer)
        check_size(y.label, M, s)
        self._set(kernel=K.read(), kernel_origin=K.origin, source=y.source, **known, **reduced(y, M)._asdict())

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics,
        kernel: Any = None,
        *,
        kernel_origin: str | None = None,
        tokens: Any = None,
        heads: Any = None,
        mask: Any = None,
        layer: Architecture | None = None,
        source: str = "array",
    ) -> Self:
        """Observations whose outputs have been reduced already (captured, cut, read back), checked as all others are."""
        statistics.check("statistics")
        M, s, _ = statistics.S.shape
        K = promised(kernel, None, s, M, M)
        self = cls.__new__(cls)
        known = setting("outputs", statistics.outputs.shape, K, tokens, heads, mask, layer)
        origin = kernel_origin or K.origin
        self._set(kernel=K.read(), kernel_origin=origin, source=source, **known, **statistics._asdict())
        return self

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

    @property
    def statistics(self) -> Statistics:
        """What was made of the outputs."""
        return Statistics(self.S, self.coordinates, self.outputs, self.constant_tokens, self.sha256)

    def first(self, networks: int) -> "Observations":
        """The first so many networks. `sha256` remains that of the outputs they were taken from."""
        n = checked_networks(networks, self.networks, "networks")
        if not self.S[:n].any():
            raise unusable("outputs", "outputs that vary", f"zeros only in the first {n} networks")
        K, layer = self.kernel, self.layer
        return Observations.from_statistics(
            self.statistics.first(n),
            K[:n] if K is not None and K.ndim == 3 else K,
            kernel_origin=self.kernel_origin,
            tokens=None if K is None else self.tokens,
            heads=self.heads,
            mask=self.mask if layer is None else None,
            layer=layer,
            source=self.source,
        )

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

    `inputs` or `kernel`, `tokens`, `heads`, `mask` and a layer's description (`hierattn.layer.record`) are used if they are
    there too. An argument, an array or the name of another file, comes before the kernel, inputs and tokens of the file
    (kernel="inferred" too). Heads and mask must agree with it; mask="none" takes off the mask of the file on purpose.
    """
    held = files.arrays(path)

    def beside(name: str, argument: Any) -> Any:
        if isinstance(argument, (str, Path)):
            return files.find(argument, name)
        return files.find(path, name) if argument is None and name in held else argument

    if kernel is None and inputs is None:
        kernel, inputs = beside("kernel", None), beside("inputs", None)
    stated = beside("heads", None)
    if stated is not None and heads not in (None, H := checked_heads(stated)):
        raise unusable("heads", f"{H}, as {path} says", heads, "leave it out")
    mask = mask if is_mask_word(mask) else beside("mask", mask)
    if mask is not None and "mask" in held:
        check_mask_agrees(mask, files.find(path, "mask"), str(path))
    return Observations(
        files.find(path, "outputs"),
        kernel if kernel is None or is_word(kernel) else beside("kernel", kernel),
        inputs=None if inputs is None else beside("inputs", inputs),
        tokens=beside("tokens", tokens),
        heads=stated if heads is None else heads,
        mask=mask,
        layer=layer_in(path),
        networks=networks,
    )
