"""A type checker for arrays alone: what users may pass instead of an array, our own validation answers for.

jaxtyping's import hook decorates every function, binds the arguments of every call to its signature and checks them twice: that
takes long. Here functions that name no shape are left alone, and those that do are checked once, with `jaxtyped` as a context.
Only shapes that refer to an argument, like "{size}", need a signature.
"""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped


def check_arrays(function: Callable) -> Callable:
    """Beartype on the annotations that name array shapes."""
    kept = {name: hint for name, hint in function.__annotations__.items() if shapes_in(hint)}
    function.__annotations__ = kept
    return beartype(function)


def checked(of: Any = None, typechecker: Callable = check_arrays) -> Any:
    """What jaxtyping's import hook puts above every function and class, in place of `jaxtyped`."""
    if of is None:
        return partial(checked, typechecker=typechecker)
    if inspect.isclass(of):
        return jaxtyped(of, typechecker=typechecker) if is_dataclass(of) else of
    shapes = [shape for hint in of.__annotations__.values() for shape in shapes_in(hint)]
    if not shapes:
        return of
    if inspect.isgeneratorfunction(of) or any("{" in shape.dim_str for shape in shapes):
        return jaxtyped(of, typechecker=typechecker)
    annotations = of.__annotations__
    checking = typechecker(of)
    of.__annotations__ = annotations

    @wraps(of)
    def in_context(*arguments: Any, **named: Any) -> Any:
        with jaxtyped("context"):
            return checking(*arguments, **named)

    return in_context


def shapes_in(hint: Any) -> list[type[AbstractArray]]:
    """Shapes that an annotation names, itself or one level beneath."""
    return [part for part in get_args(hint) or (hint,) if isinstance(part, type) and issubclass(part, AbstractArray)]
