"""Write the tables of options in docs/command_line.md, from the commands themselves.

    python docs/command_line.py

The words around the tables are written by hand; what stands between `<!-- options of X -->` and `<!-- end -->` is replaced.
"""

import re
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from hierattn.command_line.app import app

PAGE = Path(__file__).with_suffix(".md")
SECTION = re.compile(r"<!-- options of (\w+) -->\n.*?<!-- end -->", flags=re.DOTALL)
NEVER = ("--install-completion", "--show-completion")  # Typer's own, in words on the page


def commands() -> dict[str, Any]:
    """Name -> command."""
    return dict(typer.main.get_command(app).commands)


def options(command: Any) -> list[str]:
    """Every option of a command, as it is typed."""
    return [name for parameter in command.params for name in spellings(parameter) if name not in NEVER]


def spellings(parameter: Any) -> list[str]:
    """How an option is typed; an argument has none."""
    return [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]


def table(command: Any) -> str:
    """Arguments and options, one row each."""
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    for parameter in command.params:
        names = [name for name in spellings(parameter) if name not in NEVER]
        shown = " ".join(f"`{name}`" for name in names) or f"`{parameter.metavar or parameter.name.upper()}`"
        words = (parameter.help or "").replace("|", r"\|")
        rows.append(f"| {shown} | {values(parameter)} | {default(parameter)} | {words} |")
    return "\n".join(rows)


def values(parameter: Any) -> str:
    """What may be given."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if getattr(parameter, "is_flag", False):
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    if parameter.metavar and spellings(parameter):
        return f"`{parameter.metavar}`".replace("|", r"\|")
    return {int: "whole number", float: "number", Path: "file"}.get(kind, "text")  # type: ignore[call-overload]


def default(parameter: Any) -> str:
    """What is taken otherwise; where the help says it in words, nothing."""
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or getattr(parameter, "is_flag", False):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def filled(text: str) -> str:
    """The page with the tables of the present commands."""
    known = commands()
    return SECTION.sub(lambda found: f"<!-- options of {found[1]} -->\n\n{table(known[found[1]])}\n\n<!-- end -->", text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
