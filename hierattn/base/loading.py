"""A user's own Python file, run: models and programs come from such files."""

import importlib.util
from pathlib import Path
from types import ModuleType

from hierattn.base.errors import InputError


def run_file(path: str | Path, holds: str) -> ModuleType:
    """The module that a .py file makes; whatever goes wrong is said in one line that names the file."""
    path = Path(path)
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"{path}: expected a .py file with {holds}, got none; check the path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except InputError as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:
        raise InputError(f"{path}: expected a file that Python can run, got {type(error).__name__}: {error}") from error
    return module
