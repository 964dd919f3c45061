"""Syntax of Python files: which statements make a name, which names a body binds, what is only words."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Import = (ast.Import, ast.ImportFrom)
INNER = (*Function, ast.Lambda, ast.ClassDef, *Comprehension)
PLAIN = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop)
ASIDE = ("TYPE_CHECKING", "__name__ == '__main__'")  # what follows such an if is not part of a module's code


def is_words(node: Any) -> bool:
    """A docstring, or an import, which says only where things are."""
    return isinstance(node, Import) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def statements(tree: ast.Module) -> dict[str, list[Any]]:
    """Name -> the statements of a module that make it what it is; others are `at import: ...`."""
    found: dict[str, list[Any]] = defaultdict(list)
    for node in tree.body:
        if is_words(node) or (isinstance(node, ast.If) and ast.unparse(node.test) in ASIDE):
            continue
        if isinstance(node, (*Function, ast.ClassDef)):
            found[node.name].append(node)
            continue
        names = set(bound([node])) | (changed(node) & found.keys())
        if isinstance(node, ast.Expr) and names and (word := word_of(node.value)):
            names = {f"{root_of(node.value)} {word}"}
        for name in names or [f"at import: {ast.unparse(node).splitlines()[0][:60]}"]:
            found[name].append(node)
    return dict(found)


def registered(tree: ast.Module, known: dict[str, list[Any]]) -> Iterator[tuple[str, str, str]]:
    """Owner, word, name of what a definition is given: by `@app.command("law")`, or by `app.command("fit")(write_fit)`."""
    for node in tree.body:
        if isinstance(node, (*Function, ast.ClassDef)):
            for decorator in node.decorator_list:
                if "." in ast.unparse(decorator).partition("(")[0] and (root := root_of(decorator)) in known:
                    yield root, word_of(decorator), node.name
        elif isinstance(node, ast.Expr) and (root := root_of(node.value)) in known and (word := word_of(node.value)):
            yield root, word, f"{root} {word}"


def word_of(node: ast.AST) -> str:
    """The string that an expression's first call is given: `fit` of `app.command("fit")(write_fit)`."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and part.args]
    return next((a.value for call in calls if isinstance(a := call.args[0], ast.Constant) and isinstance(a.value, str)), "")


def changed(node: ast.stmt) -> set[str]:
    """Names whose parts a statement changes: CASES of `CASES["a"] = b`, `app` of `app.add(b)`."""
    return (
        {root_of(node.value)}
        if isinstance(node, ast.Expr)
        else {root_of(part) for part in own_nodes([node]) if is_target(part)}
    )


def is_target(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def root_of(node: ast.AST) -> str:
    """The name that an expression begins with: `app` of `app.command("fit")(write_fit)`."""
    while not isinstance(node, ast.Name):
        inner = getattr(node, "func", None) or getattr(node, "value", None)
        if not isinstance(inner, ast.AST):
            return ""
        node = inner
    return node.id


def own_nodes(body: Iterable[Any]) -> Iterator[ast.AST]:
    """Nodes of a body, without those inside functions, classes and comprehensions."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, INNER):
            if isinstance(node, Comprehension):  # `:=` in it binds a name outside
                waiting.extend(part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                waiting.extend(part for part in value if isinstance(part, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, PLAIN):
                waiting.append(value)


def bound(body: list[Any]) -> Iterator[str]:
    """Names that a body binds in its own scope."""
    return bound_by(list(own_nodes(body)))


def bound_by(own: list[ast.AST]) -> Iterator[str]:
    """Names that own nodes of a body bind."""
    others = {name for node in own if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for node in own:
        if isinstance(node, (*Function, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.Name) and is_target(node) and node.id not in others:
            yield node.id


def bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Name -> the dotted name of what an import binds it to."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2 for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
