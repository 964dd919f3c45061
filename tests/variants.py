"""Long lists of variants: some run every time, the others, marked slow, by `make verify`."""

from collections.abc import Iterable

import pytest


def variants(cases: Iterable[str], often: Iterable[str]) -> list:
    """Cases for pytest.mark.parametrize; those that are not run often are slow."""
    often = set(often)
    return [name if name in often else pytest.param(name, marks=pytest.mark.slow) for name in cases]
