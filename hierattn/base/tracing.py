"""Is a number being traced by JAX? NumPy does what is small and at hand: there is nothing to compile, and JAX is no faster."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def traced(*arrays: Any) -> bool:
    """Is one of them being differentiated or compiled? NumPy does the rest: nothing to compile, and JAX is no faster."""
    return any(isinstance(array, Tracer) for array in arrays)


def as_numpy(tree: Any) -> Any:
    """JAX arrays as NumPy's, unless they are being traced: what is small and at hand need not be compiled for."""
    return jax.tree.map(lambda x: x if isinstance(x, Tracer) or not isinstance(x, jax.Array) else np.asarray(x)[()], tree)


def tree_traced(tree: Any) -> bool:
    """Is any number in a tree of them?"""
    return traced(*jax.tree.leaves(tree))
