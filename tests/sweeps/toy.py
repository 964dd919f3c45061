"""Functions at points: a number that depends on its options and its seed, one that fails, one that kills its process."""

import os
import signal
import time

import numpy as np
from xarray import DataArray


def numbers(a, b=0.0, seed=0):
    """One number, its error, a row of layers."""
    rng = np.random.default_rng(seed)
    return {"mean": a + b + rng.normal(), "mean_error": 0.1, "rows": DataArray(rng.normal(size=3), dims="layer"), "none": None}


def fails(a, seed=0):
    """At one point."""
    if a == 2:
        raise ZeroDivisionError(f"a is\n{a}")
    return numbers(a, seed=seed)


def other(a):
    """Other numbers at one point."""
    return {"x": [1.0, 2.0] if a == 2 else [1.0]}


def slow(a, seconds=0.02, seed=0):
    """After a while."""
    time.sleep(seconds)
    return numbers(a, seed=seed)


def deadly(a, seed=0):
    """Takes its process with it at one point."""
    if a == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers(a, seed=seed)
