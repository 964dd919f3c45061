"""Reads a definition: its code without words, and what it refers to (tests/definitions.py says how)."""

import ast
import re
from typing import Any

from tests.syntax import Comprehension, Function, bindings, bound, bound_by, is_words, own_nodes

Scope = dict[str, str | None]  # name -> what it stands for; None: something of the function's own
SCRIPT = "hierattn.command_line.app:run"  # what pyproject.toml installs as `hierattn`
MORE_THAN_TYPES = {"Annotated", "ClassVar", "InitVar"}
SKIPPED = {"ctx", "kind", "type_comment"}


def typed(word: str) -> str:
    """A word as only a string has it: commands are called by strings, never by attributes."""
    return f'"{word}"'


class Reader:
    """Writes out syntax and notes what it refers to."""

    def __init__(self, graph: Any, module: str):
        self.graph, self.module = graph, module
        self.references: set[str] = set()
        self.words: set[str] = set()
        self.called_in: set[tuple[str, str]] = set()

    def text(self, node: Any, scopes: tuple[Scope, ...] = ()) -> str:
        """A node's code in `scopes`, the innermost last."""
        if isinstance(node, list):
            return "[" + ",".join(self.text(part, scopes) for part in node if not is_words(part)) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name(node, scopes)
        if isinstance(node, (*Function, ast.Lambda)):
            return self._function(node, scopes)
        if isinstance(node, ast.ClassDef):
            head = self.text([node.decorator_list, node.bases, node.keywords], scopes)
            return f"class {node.name}{head}" + self.text(node.body, (*scopes, self.scope(node.body) | {"": "class"}))
        if isinstance(node, Comprehension):
            scopes = (*scopes, dict.fromkeys(name for part in node.generators for name in bound([part.target])))
        if isinstance(node, ast.Call):
            self._imported(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and getattr(node.right, "value", None) == "hierattn":
            self.references.add(SCRIPT)
        fields = ast.iter_fields(node)
        if isinstance(node, (ast.arg, ast.AnnAssign)) and not self._keeps(node, scopes):
            fields = ((name, value) for name, value in fields if name != "annotation")
        kept = ((name, value) for name, value in fields if name not in SKIPPED and value not in (None, []))
        return f"{type(node).__name__}({','.join(f'{name}={self.text(value, scopes)}' for name, value in kept)})"

    def _constant(self, value: Any) -> str:
        """A string may be the name of something, or a program."""
        if isinstance(value, str):
            if re.fullmatch(r"[\w.]+", value):
                self.words |= {value.rpartition(".")[2], typed(value)}
            elif re.search(r"\bimport (hierattn|tests)|from (hierattn|tests)", value):
                try:
                    body = ast.parse(value).body
                except SyntaxError:
                    return repr(value)
                self.text(body, (self.scope(body),))
        return repr(value)

    def _lookup(self, name: str, scopes: tuple[Scope, ...]) -> str | None:
        """What a name stands for: a definition, a module, or nothing of ours."""
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        return self.graph.member(self.module, name)

    def target(self, node: ast.AST, scopes: tuple[Scope, ...] = ()) -> str | None:
        """What a dotted name stands for: a definition, or a module."""
        if isinstance(node, ast.Name):
            return self._lookup(node.id, scopes)
        if isinstance(node, ast.Attribute):
            owner = self.target(node.value, scopes)
            if owner and ":" not in owner:
                return self.graph.member(owner, node.attr)
        return None

    def _name(self, node: ast.Name | ast.Attribute, scopes: tuple[Scope, ...]) -> str:
        found = self.target(node, scopes)
        if found:
            self.references.add(found)
            return f"«{found}»"
        if isinstance(node, ast.Name):
            return f"Name({node.id})"
        self.words.add(node.attr)
        owner = self.target(node.value, scopes)
        if owner and ":" not in owner and node.attr.startswith("__"):  # of the module itself: __name__, __file__
            return f"Attribute(module.{node.attr})"
        return f"Attribute({self.text(node.value, scopes)}.{node.attr})"

    def _function(self, node: Any, scopes: tuple[Scope, ...]) -> str:
        """Decorators, defaults and annotations are read outside, the body inside."""
        arguments = [a for part in (node.args.posonlyargs, node.args.args, node.args.kwonlyargs) for a in part]
        names = [a.arg for a in (*arguments, node.args.vararg, node.args.kwarg) if a]
        outer = tuple(scope for scope in scopes if scope.get("") != "class")
        if isinstance(node, ast.Lambda):
            return f"lambda {self.text(node.args, scopes)}" + self.text(node.body, (*outer, dict.fromkeys(names)))
        if self.module.startswith("tests."):
            self.references |= {key for name in names if (key := self._fixture(name))}
        head = self.text([node.decorator_list, node.args], scopes)
        inner = dict.fromkeys(names) | self.scope(node.body)
        return f"{type(node).__name__} {node.name}{head}" + self.text(node.body, (*outer, inner))

    def _fixture(self, name: str) -> str | None:
        """A fixture of this file, or of a conftest.py above it."""
        parts = self.module.split(".")
        places = [self.module, *(".".join([*parts[:i], "conftest"]) for i in range(len(parts) - 1, 0, -1))]
        return next((f"{place}:{name}" for place in places if name in self.graph.statements.get(place, ())), None)

    def scope(self, body: list[ast.stmt]) -> Scope:
        """Names that a body binds: those that it imports stand for what they are."""
        own = list(own_nodes(body))
        imported = {name: self.graph.resolve(dotted, self.module) for name, dotted in bindings(own)}
        return dict.fromkeys(bound_by(own)) | imported

    def _imported(self, node: ast.Call) -> None:
        """A module that is imported by its name, or by a part of it."""
        if getattr(node.func, "id", getattr(node.func, "attr", "")) != "import_module" or not node.args:
            return
        first = node.args[0]
        if isinstance(first, ast.Constant):
            found = self.graph.resolve(str(first.value), self.module)
            self.references |= {found} if found else set()
        elif isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
            package = str(first.values[0].value).rstrip(".")
            inside = [name for name in self.graph.files if name.rpartition(".")[0] == package]
            self.called_in |= {(name.rpartition(".")[2], name) for name in inside}

    def _keeps(self, node: Any, scopes: tuple[Scope, ...]) -> bool:
        """Is an annotation more than a type, such as an option of a command?"""
        for part in ast.walk(node.annotation) if node.annotation else ():
            found = self.target(part, scopes)
            if isinstance(part, ast.Call) or getattr(part, "id", "") in MORE_THAN_TYPES:
                return True
            if found and ":" in found:
                module, _, name = found.partition(":")
                if not isinstance(self.graph.statements[module][name][0], ast.ClassDef):
                    return True
        return False
