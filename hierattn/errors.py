"""Errors a user can act on: one line that names the argument, what was expected, what came, what to do."""


class InputError(ValueError):
    """Something given to hierattn cannot be used as it is. The command line exits with `exit_code`."""

    exit_code = 2


class UnsafeInputError(InputError):
    """Something given to hierattn is unsafe to open or too large to hold."""

    exit_code = 3


def unusable(argument: str, expected: str, got: object, remedy: str = "") -> InputError:
    """The one form of our messages: `argument: expected ..., got ...; what to do`."""
    return InputError(f"{argument}: expected {expected}, got {got}" + (f"; {remedy}" if remedy else ""))
