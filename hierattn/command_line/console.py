"""What a user sees: results as text, table or JSON, and progress on a terminal."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hierattn.inference.course.watching import SAMPLING, WARM_UP, Watch

SHOWN = 8  # numbers of a list; JSON has all


def print_record(title: str, result: dict[str, Any], as_json: bool) -> None:
    """A result as JSON, as a table on a terminal, or as plain lines elsewhere; an error stands beside its number."""
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return
    errors = {name: "" if error is None else f"+- {error:.1g}" for name, error in result.items() if name.endswith("_error")}
    rows = [
        (name.replace("_", " "), _text(value), errors.get(f"{name}_error", ""))
        for name, value in result.items()
        if name not in errors and name != "reasons"
    ]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table, shown = Table(show_header=False), 3 if errors else 2
        for row in rows:
            table.add_row(*row[:shown])
        Console().print(title, table, sep="\n", highlight=False, soft_wrap=True, markup=False)
    else:
        wide = max(24, *(len(name) for name, *_ in rows))
        print("\n".join([title, *(f"{name:{wide}s} {value} {error}".rstrip() for name, value, error in rows)]))
    for reason in result.get("reasons", []):
        print(reason["message"])


def print_columns(title: str, first: str, names: list[str], columns: dict[str, list[Any]]) -> None:
    """A table: a line for each name, a column for each list of numbers."""
    heads = [first, *(name.replace("_", " ") for name in columns)]
    rows = [
        [name, *("-" if values[i] is None else f"{values[i]:.4g}" for values in columns.values())]
        for i, name in enumerate(names)
    ]
    widths = [max(len(cell) for cell in cells) for cells in zip(heads, *rows, strict=True)]
    lines = ("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in [heads, *rows])
    print("\n".join([title, *lines]))


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(item, list) for item in value):
        return ", ".join(f"{item:.6g}" for item in value[:SHOWN]) + (", ..." if len(value) > SHOWN else "") or "none"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def notice(message: str) -> None:
    """A line to somebody who sits at a terminal and waits."""
    if sys.stderr.isatty():
        print(f"hierattn: {message}", file=sys.stderr)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


class Bar(Watch):
    """The bar of a fit: its phase, effective draws so far, and the time left as far as these tell it."""

    def __init__(self, bar: Any, method: str, most: int, enough: float) -> None:
        self.bar, self.method, self.most, self.enough = bar, method, most, enough
        self.done, self.now, self.found = 0, "", ""
        self.task = bar.add_task(method, total=most)

    def begins(self, method: str, most: int) -> None:
        """From the beginning; the layer after this one too."""
        self.method, self.most, self.done = method, most, 0

    def phase(self, name: str) -> None:
        """The words before the bar; after the chains nobody knows how far it is."""
        self.now, self.found = name, ""
        self._update(total=self.most if name in (WARM_UP, SAMPLING) else None)

    def step(self, done: int) -> None:
        """A chunk further."""
        self.done += done
        self._update()

    def effective(self, draws: float | None) -> None:
        """As many more draws as it takes until they are effective enough, if they come as fast as they did."""
        if draws is not None:
            self.found = f", {draws:.0f} of {self.enough:.0f} effective draws"
            self._update(total=min(self.most, self.done * self.enough / max(draws, 1.0)))

    def say(self, message: str) -> None:
        """Above the bar."""
        self.bar.console.print(f"hierattn: {message}", highlight=False, soft_wrap=True, markup=False)

    def _update(self, **more: Any) -> None:
        self.bar.update(self.task, completed=self.done, description=f"{self.method}: {self.now}{self.found}", **more)


class Lines(Watch):
    """In a pipe: what a user should read now, one line each."""

    def say(self, message: str) -> None:
        """On stderr."""
        print(f"hierattn: {message}", file=sys.stderr, flush=True)


@contextmanager
def fit_progress(method: str, most: int, enough: float) -> Iterator[Watch]:
    """Who looks on at a fit: a bar on a terminal, and elsewhere lines that say what cannot wait."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar, method, most, enough)
