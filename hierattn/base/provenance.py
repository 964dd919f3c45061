"""What made a result: command, seed, versions, and hashes of the numbers it was made of."""

import hashlib
import sys
from importlib.metadata import version
from typing import Any

import numpy as np

from hierattn import __version__


def provenance(seed: int, **more: Any) -> dict[str, Any]:
    """What made a result: command, seed, versions. No time and no machine, so that equal runs write equal bytes."""
    versions = {f"version_{name}": version(name) for name in ("jax", "jaxlib", "numpy", "numpyro")}
    command = " ".join(["hierattn", *sys.argv[1:]])
    return {"version_hierattn": __version__, **versions, "command": command, "seed": seed, **more}


def digest(array: np.ndarray) -> str:
    """A hash of an array's shape, type and numbers."""
    sha256 = begin_digest(array.shape, array.dtype)
    sha256.update(np.asarray(array).tobytes())
    return sha256.hexdigest()


def begin_digest(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The beginning of the same hash, for an array that comes block by block."""
    return hashlib.sha256(repr((shape, str(dtype))).encode())
