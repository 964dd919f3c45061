"""Where a function is evaluated: all combinations of some values, or points one by one."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hierattn.base.errors import unusable

Over = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
POINT = "point"  # the dim of points one by one
PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Points:
    """Points in order, made when they are asked for.

    - values: of each option; along each dim of a grid, or of every point in turn
    - grid: are they combined?
    """

    values: dict[str, tuple[Any, ...]]
    grid: bool

    @property
    def dims(self) -> dict[str, int]:
        """Dim -> length."""
        lengths = {name: len(values) for name, values in self.values.items()}
        return lengths if self.grid else {POINT: max(lengths.values())}

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dims."""
        return tuple(self.dims.values())

    def __len__(self) -> int:
        return math.prod(self.shape)

    def place(self, k: int) -> tuple[int, ...]:
        """Where the k-th point lies on the grid; the last dim runs fastest."""
        place = []
        for length in reversed(self.shape):
            k, i = divmod(k, length)
            place.append(i)
        return tuple(reversed(place))

    def point(self, k: int) -> dict[str, Any]:
        """Options of the k-th point."""
        place = self.place(k) if self.grid else (k,) * len(self.values)
        return {name: values[i] for (name, values), i in zip(self.values.items(), place, strict=True)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.point, range(len(self)))

    def labels(self) -> dict[str, tuple[str, list[Any]]]:
        """Option -> its dim and its coordinate there: numbers if all are, else words."""
        return {name: (name if self.grid else POINT, labels(values)) for name, values in self.values.items()}

    def record(self) -> Any:
        """As a plan file has them."""
        return {name: list(values) for name, values in self.values.items()} if self.grid else list(self)


def points_of(over: Over) -> Points:
    """A grid from a dict of lists, points from a list of dicts; each but once."""
    if isinstance(over, Mapping):
        if not over:
            raise unusable("over", "at least one option with its values", "none", 'as in {"heads": [1, 2, 4]}')
        values = {str(name): _values(name, given) for name, given in over.items()}
        for name, each in values.items():
            _once(name, each)
        return Points(values, grid=True)
    listed = list(over)
    if not listed or not all(isinstance(point, Mapping) and point for point in listed):
        raise unusable("over", "a dict of lists, or a list of dicts", repr(over), 'as in [{"heads": 1}, {"heads": 4}]')
    names = tuple(listed[0])
    for point in listed:
        if set(point) != set(names):
            raise unusable("over", f"points that all have {', '.join(names)}", ", ".join(point))
    values = {name: _values(name, [point[name] for point in listed]) for name in names}
    _once("over", list(zip(*values.values(), strict=True)))
    return Points(values, grid=False)


def _values(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise unusable(f"over {name}", "a list of values", repr(given), f"as in {name} = [{given!r}]")
    values = tuple(_plain(name, value) for value in given)
    if not values:
        raise unusable(f"over {name}", "at least one value", "none")
    return values


def _plain(name: str, value: Any) -> Any:
    """A value that a file can hold: numbers, words, lists of these."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        return [_plain(name, each) for each in value]
    if not isinstance(value, PLAIN):
        raise unusable(f"over {name}", "numbers, words, or lists of them", type(value).__name__, "give paths as words")
    if isinstance(value, float) and not math.isfinite(value):
        raise unusable(f"over {name}", "finite numbers", value)
    return value


def _once(name: str, values: Sequence[Any]) -> None:
    seen: set[str] = set()
    for value in values:
        text = written(value)
        if text in seen:
            raise unusable(f"over {name}" if name != "over" else name, "every point once", f"{text} twice")
        seen.add(text)


def written(value: Any) -> str:
    """The one way to write a value; 1 and 1.0 are the same number."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_canonical(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _canonical(each) for name, each in value.items()}
    return value


def labels(values: Sequence[Any]) -> list[Any]:
    """Coordinates: numbers if all are, else words."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return list(values)
    return [value if isinstance(value, str) else written(value) for value in values]
