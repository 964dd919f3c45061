"""A type checker for arrays alone: what users may pass instead of an array, our own validation answers for."""

from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check_arrays(function):
    """Beartype on the annotations that name array shapes."""
    kept = {name: hint for name, hint in function.__annotations__.items() if _is_shape(hint)}
    function.__annotations__ = kept
    return beartype(function)


def _is_shape(hint) -> bool:
    parts = get_args(hint) or (hint,)
    return any(isinstance(part, type) and issubclass(part, AbstractArray) for part in parts)
