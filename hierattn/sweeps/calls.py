"""What is done at a point: which function, with which options, and what it may return."""

import hashlib
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hierattn.base.errors import InputError, unusable
from hierattn.base.loading import run_file
from hierattn.sweeps.functions import FUNCTIONS, FURTHER
from hierattn.sweeps.points import written

SEED = "seed"


class Call(NamedTuple):
    """A function, its name in plans, and a hash of its text, so that another one does not go on with its results."""

    function: Callable[..., Mapping[str, Any]]
    name: str
    text_sha256: str

    def check(self, names: Iterable[str]) -> None:
        """Options that it takes, and all that it needs."""
        parameters = inspect.signature(self.function).parameters.values()
        named = {x.name for x in parameters if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)}
        open_ended = any(x.kind is x.VAR_KEYWORD for x in parameters)
        if self.function in FURTHER:
            named, open_ended = named | {*FURTHER[self.function]}, False
        for name in names:
            if name not in named and not open_ended:
                near = get_close_matches(name, named, 1)
                remedy = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(named))}"
                raise unusable("over", f"options of {self.name}", name, remedy)
        needed = {x.name for x in parameters if x.default is x.empty and x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)}
        if lacks := needed - {*names, SEED}:
            raise unusable("settings", f"all that {self.name} needs", f"no {', '.join(sorted(lacks))}")

    @property
    def seeded(self) -> bool:
        """Does it take a seed?"""
        parameters = inspect.signature(self.function).parameters.values()
        return any(x.name == SEED or x.kind is x.VAR_KEYWORD for x in parameters)


class Quantity(NamedTuple):
    """One of the things that a function returns: its name, dims beside those of the points, and their lengths."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]


Layout = tuple[Quantity, ...]


class Outcome(NamedTuple):
    """What became of a point: numbers, one after the other as the layout says; or why there are none."""

    layout: Layout
    numbers: np.ndarray
    message: str
    seconds: float

    def like(self, known: Layout | None) -> "Outcome":
        """The same, if its numbers are those of other points; else a failure."""
        if self.message or known is None or self.layout == known:
            return self
        return self._replace(message=_other(self.layout, known), numbers=np.empty(0))


def _other(found: Layout, known: Layout) -> str:
    """How two layouts differ, in words."""
    mine, theirs = ({q.name: q.shape for q in layout} for layout in (found, known))
    name = next((name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)), "")
    shapes = (f"of shape {x[name]}" if name in x else "none" for x in (theirs, mine))
    return "function: expected {} as at other points, got {}; {}".format(*shapes, f"look at {name}" if name else "")


def find(function: Callable[..., Any] | str) -> Call:
    """A function of one's own, the name of one of ours, or FILE.py:NAME."""
    if callable(function):
        name = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
        return Call(function, name, _text_of(function))
    if function in FUNCTIONS:
        return Call(FUNCTIONS[function], str(function), "")
    path, _, name = str(function).rpartition(":")
    if not path.endswith(".py"):
        near = get_close_matches(str(function), FUNCTIONS, 1)
        remedy = f"did you mean {near[0]}?" if near else "or FILE.py:NAME for a function of your own"
        raise unusable("function", f"one of {', '.join(FUNCTIONS)}", repr(function), remedy)
    module = run_file(path, f"a function {name}")
    found = getattr(module, name, None)
    if not callable(found):
        raise unusable("function", f"a function {name} in {path}", type(found).__name__)
    return Call(found, str(function), hashlib.sha256(Path(path).read_bytes()).hexdigest())


def _text_of(function: Any) -> str:
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt, or compiled: there is no text to look at
        return ""


def seed_of(seed: int, point: Mapping[str, Any]) -> int:
    """A seed for a point, from what it is and not from where it stands: a larger grid has the same numbers there."""
    text = written({"seed": seed, "point": dict(point)})
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def evaluate(function: Callable[..., Mapping[str, Any]], options: dict[str, Any]) -> Outcome:
    """The function at a point; whatever goes wrong is a message."""
    start = time.perf_counter()
    try:
        layout, numbers, message = *numbers_of(function(**options)), ""
    except InputError as error:
        layout, numbers, message = (), np.empty(0), str(error)
    except Exception as error:  # another point may well succeed
        layout, numbers, message = (), np.empty(0), f"{type(error).__name__}: {error}"
    return Outcome(layout, numbers, " ".join(message.split()), time.perf_counter() - start)


def numbers_of(record: Any) -> tuple[Layout, np.ndarray]:
    """What a function returned, as a layout and its numbers; None is NaN."""
    if not isinstance(record, Mapping) or not record:
        raise unusable("function", "a dict of numbers", type(record).__name__)
    layout, parts = [], []
    for name, value in record.items():
        try:
            array = np.asarray(value, float)
        except (TypeError, ValueError):
            raise unusable("function", f"numbers for {name}", repr(value)[:60], "leave words out") from None
        dims = getattr(value, "dims", tuple(f"{name}_{k}" for k in range(array.ndim)))
        layout.append(Quantity(str(name), tuple(map(str, dims)), array.shape))
        parts.append(array.ravel())
    return tuple(layout), np.concatenate(parts)
