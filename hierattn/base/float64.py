"""Inference and marginals run in float64, and leave JAX's setting as it was."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def in_float64(function: Callable) -> Callable:
    """Run in float64 and leave JAX's setting as it was; arrays come back as NumPy's, unless they are being traced."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            result = function(*args, **kwargs)
        return jax.tree.map(
            lambda x: np.asarray(x)[()] if isinstance(x, jax.Array) and not isinstance(x, Tracer) else x, result
        )

    return wrapped
