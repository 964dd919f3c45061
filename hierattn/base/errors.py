"""Errors a user can act on: one line that names the argument, what was expected, what came, what to do."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class InputError(ValueError):
    """Something given to hierattn cannot be used as it is. The command line exits with `exit_code`."""

    exit_code = 2


class UnsafeInputError(InputError):
    """Something given to hierattn is unsafe to open or too large to hold."""

    exit_code = 3


def unusable(argument: str, expected: str, got: object, remedy: str = "") -> InputError:
    """The one form of our messages: `argument: expected ..., got ...; what to do`."""
    return InputError(f"{argument}: expected {expected}, got {got}" + (f"; {remedy}" if remedy else ""))


def check_key(rng_key: Any) -> None:
    """A JAX random key, new style or old."""
    shape, kind = getattr(rng_key, "shape", None), str(getattr(rng_key, "dtype", None))
    if (shape, kind) != ((2,), "uint32") and not (shape == () and kind.startswith("key<")):
        raise unusable("rng_key", "a JAX random key", repr(rng_key), "use jax.random.key(0)")


def check_counts(**counts: Any) -> None:
    """Positive whole numbers."""
    import numpy as np

    for name, count in counts.items():
        if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
            raise unusable(name, "a positive whole number", repr(count))


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """One of some words."""
    if value not in choices:
        raise unusable(name, "one of " + ", ".join(choices), repr(value))


def as_array(argument: str, value: Any, kind: type | None = float) -> "np.ndarray":
    """The value as a NumPy array (of this kind), or an error that names the argument."""
    import numpy as np
    from jax.core import Tracer

    if isinstance(value, Tracer):
        raise unusable(argument, "concrete numbers", "an abstract JAX value", "inside jit make the law with Law.from_factors")
    try:
        return np.asarray(value, kind)
    except (TypeError, ValueError):
        raise unusable(argument, "an array of numbers", type(value).__name__) from None
