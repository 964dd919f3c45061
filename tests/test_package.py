"""The wheel: built, installed into a fresh environment, run outside the checkout."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hierattn

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing left over in the checkout gets in and two workers do not meet."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("hierattn", "models"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "build", "--wheel", source], check=True, capture_output=True)
    return next((source / "dist").glob("*.whl"))


def test_wheel_holds_the_package_and_nothing_else_at_top_level(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"hierattn"}
    files = [path for path in (ROOT / "hierattn").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ours = {str(path.relative_to(ROOT)) for path in files} | {"hierattn/models/limit_law.py"}
    assert ours <= set(names)


@pytest.mark.slow
def test_wheel_works_in_a_fresh_environment(wheel, tmp_path):
    """With its dependencies, installed by the pip of this environment; bytecode of what is not imported is not made."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wheel], check=True, capture_output=True, cwd=tmp_path)
    program = [python.parent / "hierattn", "law", "--heads", "2", "--json"]
    record = json.loads(subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path).stdout)
    assert abs(record["variance"] - 0.3919714436) < 1e-9
    told = subprocess.run([python, "-m", "hierattn", "--version"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert told.stdout == f"hierattn {hierattn.__version__}\n"
    code = "import hierattn as ha; ha.models.DIMS; import importlib.util as u; assert u.find_spec('models') is None"
    subprocess.run([python, "-c", f"{code}; from hierattn.models import limit_law"], check=True, cwd=tmp_path)
