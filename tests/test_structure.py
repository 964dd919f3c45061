"""The plan of the house: who may import whom, how many files a folder holds, how long they are, what importing costs."""

import ast
import shutil
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.graph import ROOT, files, graph, imported, parsed

FOLDERS = (  # a folder imports only those before it
    "base",
    "numerics",
    "layer",
    "law",
    "stack",
    "finite",
    "netsor",
    "models",
    "observed",
    "frameworks",
    "inference",
    "diagnostics",
    "reporting",
    "sweeps",
    "command_line",
    "__main__",  # python -m hierattn
)
ALLOWED = {  # other people's packages, and where they may be imported
    "numpyro": ("law.distributions", "law.plates", "models", "inference", "netsor.model"),
    "arviz": ("inference", "diagnostics", "reporting", "observed.fits"),
    "arviz_stats": ("inference",),
    "matplotlib": ("reporting",),
    "jinja2": ("reporting",),
    "typer": ("command_line",),
    "rich": ("command_line.console",),
    "dask": ("sweeps.places",),
    "distributed": ("sweeps.places",),
    "torch": ("frameworks", "command_line.capture"),
    "flax": ("frameworks.flax_layers",),
    "transformers": ("frameworks.hugging_face.models",),
}
MOST_FILES, MOST_LINES = 12, 300
OURS = {module: path for module, path in files().items() if module.startswith("hierattn")}


def inner(module):
    """The name beneath hierattn: `law.law`."""
    return module.removeprefix("hierattn").lstrip(".")


def folder_of(module):
    return inner(module).partition(".")[0]


def upward(found):
    """Imports of a folder that comes later."""
    order = {folder: rank for rank, folder in enumerate(FOLDERS)}
    pairs = [(a, b) for a, others in found.items() if inner(a) for b in others if inner(b)]
    return [f"{a} imports {b}" for a, b in sorted(pairs) if order[folder_of(a)] < order[folder_of(b)]]


def cycle(found):
    """Modules that import each other in a circle."""
    try:
        TopologicalSorter({a: {b for b in others if inner(b)} for a, others in found.items() if inner(a)}).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@cache
def of_ours(root=ROOT):
    return {a: {b for b in others if b.startswith("hierattn")} for a, others in graph(root).items() if a.startswith("hierattn")}


def test_folders_import_only_folders_before_them():
    assert {folder_of(module) for module in OURS} - {""} == set(FOLDERS)
    assert upward(of_ours()) == []


def test_there_are_no_cycles():
    assert cycle(of_ours()) is None


def test_a_planted_cycle_inside_a_function_is_seen(tmp_path):
    for folder in ("hierattn", "models"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "hierattn" / "law" / "sampling.py"
    planted.write_text(planted.read_text() + "\n\ndef f():\n    from hierattn.law import law\n")
    assert set(cycle(of_ours.__wrapped__(tmp_path))) >= {"hierattn.law.law", "hierattn.law.sampling"}
    planted.write_text(planted.read_text().replace("hierattn.law import law", "hierattn.reporting import page"))
    assert upward(of_ours.__wrapped__(tmp_path)) == ["hierattn.law.sampling imports hierattn.reporting.page"]


@cache
def packages_of_others():
    """Module -> first names of all that it imports."""
    return {m: {name.partition(".")[0] for name in imported(parsed(path.read_text()))} for m, path in OURS.items()}


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_of_others_are_where_they_belong(package):
    users = [m for m, names in packages_of_others().items() if package in names]
    assert [module for module in users if not f"{inner(module)}.".startswith(tuple(f"{x}." for x in ALLOWED[package]))] == []


def test_folders_hold_a_dozen_files_at_most():
    counts = {}
    for path in OURS.values():
        counts[path.parent] = counts.get(path.parent, 0) + (path.name != "__init__.py")
    assert {str(folder): n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_files_stay_readable():
    assert {m: n for m, path in OURS.items() if (n := len(path.read_text().splitlines())) > MOST_LINES} == {}


def test_every_folder_says_in_one_sentence_what_it_is_for():
    for module, path in OURS.items():
        if path.name == "__init__.py" and inner(module) and module != "hierattn.models":
            assert len(ast.get_docstring(parsed(path.read_text())).splitlines()) == 1, module


def test_importing_is_light_and_leaves_jax_as_it_was():
    heavy = "{'jax', 'numpy', 'numpyro', 'arviz'}"
    code = f"import sys, hierattn, hierattn.command_line.app; assert not {heavy} & set(sys.modules), sys.modules\n"
    code += "import jax; hierattn.Law, hierattn.distributions; assert not jax.config.jax_enable_x64"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist_and_none_is_a_module_of_another_kind():
    import hierattn

    for name in hierattn.__all__:
        assert getattr(hierattn, name) is not None
    assert set(hierattn.__all__) <= set(dir(hierattn))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hierattn.nonsense
