"""The graph of definitions: which function, class, method or constant refers to which, and the code of each without its words.

Nodes are `module:name`, such as `hierattn.law.law:Law`, `hierattn.law.law:Law.sample` and `analysis.claims.moments:CASES`.
References are resolved through imports, at the top of a file or inside a function, through the lazy names of `hierattn`, and
through modules that pass a name on. What cannot be resolved by reading is taken to be used where it might be:

- a module that is passed around as an object counts as all of its definitions;
- methods of a class that is reached count once their name is mentioned in code that is reached, as an attribute or a string;
- so do modules of `import_module(f"hierattn.models.{name}")`; commands of the command line's app count once a string names
  them, and the app is reached by `... / "hierattn"`, the installed program;
- a string that is a Python program counts as code;
- an argument of a test is the fixture of that name.

A definition's code is written out from its syntax tree, without docstrings, comments, imports and plain annotations, and with
every reference to another of our definitions by its bare name: moving it or renaming a module leaves the code as it is.
"""

import ast
import hashlib
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.graph import ROOT, files, parsed
from tests.reader import Reader, typed
from tests.syntax import Function, bindings, own_nodes, registered, statements

ALWAYS = {"tree_flatten", "tree_unflatten"}  # called by JAX
PLAIN_BASES = {"NamedTuple", "ABC", "Protocol", "Enum", "StrEnum", "Exception", "ValueError", "object", "Generic"}
PLUMBING = {"hierattn:__version__", "hierattn:__getattr__", "hierattn:__dir__", "hierattn:_HOMES", "hierattn:__all__"}
REFERENCE = re.compile("«(.*?)»")


class Definition(NamedTuple):
    """Its code, with references written «module:name»; what it refers to; words it mentions; (word, what that calls in)."""

    code: str
    references: frozenset[str]
    words: frozenset[str]
    called_in: frozenset[tuple[str, str]]


class Graph:
    """All definitions beneath a root."""

    def __init__(self, root: Path = ROOT):
        self.files = files(root)
        self.trees = {module: parsed(path.read_text()) for module, path in self.files.items()}
        self.statements = {module: statements(tree) for module, tree in self.trees.items()}
        self.imports = {module: dict(bindings(own_nodes(tree.body))) for module, tree in self.trees.items()}
        self.lazy = self._lazy()
        self.nodes: dict[str, Definition] = {}
        for module in self.files:
            for name in self.statements[module]:
                self._define(module, name)
            for owner, word, name in registered(self.trees[module], self.statements[module]):
                self._register(f"{module}:{owner}", word, f"{module}:{name}")

    def _lazy(self) -> dict[str, str]:
        """Names of `hierattn` that are loaded when they are used -> where they are."""
        homes = {name: f"hierattn.{home}.{name}" for name, home in self._table("hierattn", "_HOMES").items()}
        return homes | {name: f"hierattn.{home}" for name, home in self._table("hierattn.base.moved", "PUBLIC").items()}

    def _table(self, module: str, name: str) -> dict[str, str]:
        """A dict of constants in a module."""
        found = self.statements.get(module, {}).get(name, [])
        return ast.literal_eval(found[0].value) if found else {}

    def _define(self, module: str, name: str) -> None:
        statements = self.statements[module][name]
        if len(statements) == 1 and isinstance(statements[0], ast.ClassDef):
            self._define_class(module, statements[0])
            return
        reader = Reader(self, module)
        code = ";".join(reader.text(statement) for statement in statements)
        self.nodes[f"{module}:{name}"] = self._definition(module, name, reader, code)

    def _define_class(self, module: str, node: ast.ClassDef) -> None:
        """A class without its methods, and the methods, called in by their names."""
        reader, key = Reader(self, module), f"{module}:{node.name}"
        methods = [part for part in node.body if isinstance(part, Function)]
        others = [part for part in node.body if not isinstance(part, Function)]
        scope = reader.scope(node.body) | {"": "class"}
        head = reader.text([node.decorator_list, node.bases, node.keywords])
        code = f"class {node.name}{head}" + reader.text(others, (scope,))
        foreign = any(not self._is_plain(base, reader) for base in node.bases)
        for method in methods:
            inner, name = Reader(self, module), f"{key}.{method.name}"
            known = self.nodes.get(name)  # a property and its setter
            text = (known.code if known else "") + inner.text(method)
            self.nodes[name] = self._definition(module, name.partition(":")[2], inner, text, owner=key)
            if foreign or method.name in ALWAYS or method.name.startswith("__"):
                reader.references.add(name)
            else:
                reader.called_in.add((method.name, name))
        self.nodes[key] = self._definition(module, node.name, reader, code)

    def _register(self, owner: str, word: str, key: str) -> None:
        """What `owner` was given, called in by a word if it was given one."""
        node = self.nodes[owner]
        more = {"called_in": node.called_in | {(typed(word), key)}} if word else {"references": node.references | {key}}
        self.nodes[owner] = node._replace(**more)

    def _is_plain(self, base: ast.expr, reader: Reader) -> bool:
        """A base that calls no method by a name that our code does not mention: one of ours, or one of Python's own."""
        name = getattr(base, "id", getattr(base, "attr", ""))
        target = reader.target(base)
        return name in PLAIN_BASES if target is None else self._plain_class(target)

    def _plain_class(self, key: str) -> bool:
        module, _, name = key.partition(":")
        nodes = [node for node in self.statements.get(module, {}).get(name, []) if isinstance(node, ast.ClassDef)]
        return all(self._is_plain(base, Reader(self, module)) for node in nodes for base in node.bases)

    def _definition(self, module: str, name: str, reader: Reader, code: str, owner: str | None = None) -> Definition:
        key = f"{module}:{name}"
        references = (reader.references | ({owner} if owner else set())) - {key}
        package = self.files[module].name == "__init__.py"  # what a package does when it is imported is about importing
        if not package and not name.startswith("at import"):
            references |= {f"{module}:{other}" for other in self.statements[module] if other.startswith("at import")}
        return Definition(code, frozenset(references), frozenset(reader.words), frozenset(reader.called_in))

    def member(self, module: str, name: str) -> str | None:
        """What `module.name` is: a definition, or a module."""
        if name in self.statements[module]:
            return f"{module}:{name}"
        if module == "hierattn" and name in self.lazy:
            return self.resolve(self.lazy[name])
        if f"{module}.{name}" in self.files:
            return f"{module}.{name}"
        if name in self.imports[module]:
            return self.resolve(self.imports[module][name], module)
        return None

    def resolve(self, dotted: str, where: str = "") -> str | None:
        """What an imported name is; None for what is not ours. Scripts of analysis/ find each other without its name."""
        parts = dotted.split(".")
        if parts[0] not in self.files and where.startswith("analysis."):
            nearby = [where.rpartition(".")[0], "analysis"]
            parts = next((f"{folder}.{dotted}".split(".") for folder in nearby if f"{folder}.{parts[0]}" in self.files), parts)
        start = next((i for i in range(1, len(parts) + 1) if ".".join(parts[:i]) in self.files), None)
        if start is None:
            return None
        found = ".".join(parts[:start])
        for part in parts[start:]:
            inner = self.member(found, part)
            if inner is None:  # made while the module runs, if it is there at all
                return None if self.files[found].name == "__init__.py" else found
            if ":" in inner:
                return inner
            found = inner
        return found

    def whole(self, module: str) -> list[str]:
        """All definitions of a module, and of the modules beneath it if it is a package."""
        package = self.files[module].name == "__init__.py"
        modules = [other for other in self.files if other == module or (package and other.startswith(f"{module}."))]
        return [key for other in modules for key in self.of(other)]

    @cache  # noqa: B019
    def of(self, module: str) -> tuple[str, ...]:
        """Definitions of a module."""
        return tuple(key for key in self.nodes if key.partition(":")[0] == module)

    def reached(self, module: str) -> dict[str, int]:
        """Definitions that the code of a module reaches, itself included -> how many references away."""
        found, words, waiting = dict.fromkeys(self.of(module), 0), set(), defaultdict(set)
        frontier, distance = set(found), 0
        while frontier:
            distance, nodes = distance + 1, [self.nodes[key] for key in frontier]
            heard = {word for node in nodes for word in node.words} - words
            words |= heard
            called = {key for word in heard for key in waiting.pop(word, ())}
            for word, target in {pair for node in nodes for pair in node.called_in}:
                if word in words:
                    called.add(target)
                else:
                    waiting[word].add(target)
            named = called | {key for node in nodes for key in node.references}
            every = {key for name in named for key in ([name] if ":" in name else self.whole(name))}
            frontier = {key for key in every if key not in found and key not in PLUMBING}
            found |= dict.fromkeys(frontier, distance)
        return found

    def code_of(self, key: str) -> str:
        """The code of a definition, whatever the modules are called."""
        return REFERENCE.sub(lambda match: self._bare(match[1]), self.nodes[key].code)

    def _bare(self, target: str) -> str:
        if ":" in target:
            return target.partition(":")[2]
        return "module of " + " ".join(sorted(self.statements[target]))

    def digests(self, module: str) -> dict[str, str]:
        """Bare name -> hash of its code, of all that a module reaches; of several with one name all hashes.

        Where a name has several bearers, a reference to one carries the hash of its code too: exchanging them is a change.
        """
        bearers = defaultdict(list)
        for key in self.reached(module):
            bearers[self._bare(key)].append(key)
        shared = {key for keys in bearers.values() if len(keys) > 1 for key in keys}

        def mark(match: re.Match) -> str:
            return self._bare(match[1]) + (_hash(self.code_of(match[1])) if match[1] in shared else "")

        hashes = {name: [_hash(REFERENCE.sub(mark, self.nodes[key].code)) for key in keys] for name, keys in bearers.items()}
        return {name: " ".join(sorted(hashes[name])) for name in sorted(hashes)}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def graph(root: Path = ROOT) -> Graph:
    """The graph of a checkout, read once."""
    return Graph(root)
