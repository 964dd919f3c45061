"""Modules of the package with one mistake in them, made on purpose: what a test must reject."""

import importlib.util
import inspect
from types import ModuleType


def mutant(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """A copy of the module in which `right`, which occurs once, is replaced."""
    source = inspect.getsource(module)
    assert source.count(right) == 1, f"{module.__name__} has {source.count(right)} times: {right}"
    copy = importlib.util.module_from_spec(importlib.util.find_spec(module.__name__))
    exec(compile(source.replace(right, wrong), f"{module.__name__} with {wrong!r}", "exec"), copy.__dict__)
    return copy
