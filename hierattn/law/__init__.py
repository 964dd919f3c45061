"""The distribution of one wide layer's outputs: scores, covariance, sampling, moments, marginals, NumPyro distributions."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`hierattn.law` was the file that `Law` is in."""
    if name == "Law":
        from hierattn.law.law import Law

        return Law
    raise AttributeError(f"module 'hierattn.law' has no attribute {name!r}")
