"""The plan of the house: who may import whom, how long a file may be, what importing costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*(ROOT / "hierattn").rglob("*.py"), *(ROOT / "models").rglob("*.py")])
LAYERS = [
    {"errors", "console", "random_numbers"},
    {"storage", "stored", "architecture", "activations", "rqmc", "independent", "wishart", "mixtures", "notation"},
    {"kernels", "sampling", "inputs", "formats", "coordinatewise", "drawing", "two_level", "loading"},
    {"network", "one_token", "scale_mixture", "files", "observed_kernel"},
    {"stored_fits", "described"},
    {"marginal"},
    {"law"},
    {"joint_moments", "collapsed"},
    {"moments", "theorem"},
    {"token_law"},
    {"distributions"},
    {"modelling"},
    {"models"},
    {"observations", "netsor"},
    {"inspection", "inference", "frameworks"},
    {"calibration", "model_comparison"},
    {"comparison"},
    {"diagnostics"},
    {"reporting"},
    {"demonstration"},
    {"options"},
    {"inference_commands", "diagnosis_commands", "program_commands", "capture_commands"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ALLOWED = {
    "numpyro": {"distributions", "modelling", "models", "inference", "netsor"},
    "arviz": {"inference", "diagnostics", "reporting"},
    "matplotlib": {"reporting"},
    "jinja2": {"reporting"},
    "typer": {"cli", "options", "inference_commands", "diagnosis_commands", "program_commands", "capture_commands"},
    "rich": {"console"},
    "torch": {"torch_layers", "transformers_models"},
    "flax": {"flax_layers"},
    "transformers": set(),
}


ROOMS = ("models", "inference", "netsor", "diagnostics", "reporting", "frameworks")  # folders whose files may import each other


def part(path):
    return path.parent.name if path.parent.name in ROOMS else path.stem


def imports(tree):
    """Modules imported when the file is loaded: not those inside functions or for type checking."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lower_layers_do_not_import_higher_ones(path):
    if path.name == "__init__.py":
        return
    for name in imports(ast.parse(path.read_text())):
        head, *rest = name.split(".")
        if head == "hierattn" and rest and rest[0] in RANK:
            same_room = rest[0] == part(path) and part(path) in ROOMS
            assert RANK[rest[0]] < RANK[part(path)] or same_room, f"{path.name} imports {name}"
        if head in ALLOWED:
            assert {part(path), path.stem} & ALLOWED[head], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 300


def test_programs_stay_small_and_numpyro_is_in_their_model_alone():
    room = sorted((ROOT / "hierattn" / "netsor").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in room) < 700
    assert [path.name for path in room if any(name.startswith("numpyro") for name in imports(ast.parse(path.read_text())))] == [
        "model.py"
    ]


def test_importing_is_light_and_leaves_jax_as_it_was():
    code = "import sys, hierattn, hierattn.cli; assert not {'jax', 'numpy', 'numpyro', 'arviz'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import hierattn, jax; hierattn.Law, hierattn.distributions; assert not jax.config.jax_enable_x64"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist_and_none_is_a_module_of_another_kind():
    import hierattn

    for name in hierattn.__all__:
        assert getattr(hierattn, name) is not None
    assert set(hierattn.__all__) <= set(dir(hierattn))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hierattn.nonsense
