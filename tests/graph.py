"""The import graph: which module imports which, at the top of a file, inside a function, for type checking or by its name.

Read from the text of the files (ast.walk), so that nothing hides inside a function. Modules have dotted names, such as
`hierattn.law.law`, `tests.law.test_law` and `analysis.claims.moments`; `models/` is `hierattn.models`.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
# the longest name first
PACKAGES = {"hierattn.models": "models", "hierattn": "hierattn", "tests": "tests", "analysis": "analysis"}


def files(root: Path = ROOT) -> dict[str, Path]:
    """Module -> its file."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            found[".".join([package, *path.relative_to(root / folder).with_suffix("").parts]).removesuffix(".__init__")] = path
    return found


@cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a file, which nobody changes: one for all files of equal text, and for all who ask."""
    return ast.parse(text)


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of what a file imports, wherever it does: modules, or things in modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (leaf.value.rstrip(".") for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and leaf.value)


def module_of(name: str, known: dict[str, Path]) -> str | None:
    """The module that an imported name is, or is in."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports."""
    known = files(root)
    found = {}
    for module, path in known.items():
        names = (module_of(name, known) for name in imported(parsed(path.read_text())))
        found[module] = {name for name in names if name and name != module}
    return found
