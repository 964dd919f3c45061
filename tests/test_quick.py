"""What `make quick` chooses, in which order, and when it stops."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import quick
from tests.definitions import Graph, graph
from tests.graph import ROOT

HOUSE = {
    "hierattn/__init__.py": "",
    "hierattn/law.py": "def law(): return open('page.html')\n",
    "hierattn/page.py": 'def page(): return open("page.html")\n',
    "hierattn/fit.py": "from hierattn.law import law\ndef fit(): return law()\n",
    "tests/conftest.py": "def a_fit(): from hierattn.fit import fit\n",
    "tests/test_far.py": "from hierattn.fit import fit\ndef test_fit(): fit()\n",
    "tests/test_law.py": "",
    "tests/test_near.py": "from hierattn.law import law\ndef test_law(): law()\n",
    "tests/test_page.py": "def test_page():\n    from hierattn.page import page\n    page()\n",
    "tests/test_readme.py": "",
    "tests/inner/conftest.py": "",
    "tests/inner/test_inner.py": "def test_inner(): pass\n",
    "analysis/figure.py": "",
    "tests/test_figures.py": 'PATH = ROOT / "analysis" / "figure.py"\n',
}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    root = tmp_path_factory.mktemp("house")
    for name, text in HOUSE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["hierattn/law.py"], ["near", "far"]),
        (["hierattn/fit.py"], ["far"]),
        (["hierattn/law.py", "tests/test_far.py"], ["far", "near"]),
        (["hierattn/page.html"], ["page"]),
        (["README.md"], ["readme"]),
        (["docs/theory.md", "LICENSE"], ["readme"]),
        (["tests/inner/conftest.py"], ["inner/test_inner"]),
        (["analysis/figure.py"], ["figures"]),
        (["hierattn/gone.py", "setup.txt"], []),
        ([], []),
    ],
)
def test_tests_that_reach_a_change_nearest_first(house, changed, chosen):
    names = [f"tests/{name}.py" if "/" in name else f"tests/test_{name}.py" for name in chosen]
    assert list(quick.selection(changed, Graph(house), house)) == names


def test_in_the_house_itself_a_modules_own_test_comes_first_and_strangers_not_at_all():
    chosen = quick.selection(["hierattn/netsor/limit.py"], graph())
    assert next(iter(chosen)) == "tests/netsor/test_limit.py"
    assert "tests/law/test_marginal.py" not in chosen
    assert list(quick.selection(["README.md"], graph())) == ["tests/test_readme.py"]
    assert "tests/test_structure.py" in quick.selection(["hierattn/base/threads.py"], graph())


def test_what_is_not_collected_here_is_not_named():
    assert quick.ignored(Path("tests/frameworks/test_torch_layers.py")) == (find_spec("torch") is None)
    assert not quick.ignored(Path("tests/frameworks/test_flax_layers.py"))
    assert not quick.ignored(Path("tests/law/test_law.py"))


def test_changes_are_those_not_committed_or_else_the_last_commits(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("x = 1\n")
        git("add", "-A")
        git("commit", "-m", name)
    assert quick.changed_files(tmp_path) == ["two.py"]
    (tmp_path / "one.py").write_text("x = 2\n")
    (tmp_path / "three.py").write_text("")
    assert quick.changed_files(tmp_path) == ["one.py", "three.py"]


TIMES = """
import time
def test_begun(): time.sleep(60)
def test_another(): pass
def test_more(): pass
"""
RUN = """
import os, sys, time, pytest
from tests import quick
quick.GRACE = 0.5
for seconds, words in ((1000, "another"), (1, "begun or another or more")):
    os.environ[quick.DEADLINE] = str(time.time() + seconds)
    pytest.main(["-p", "tests.quick", "-p", "no:cacheprovider", sys.argv[1], "-k", words])
"""


def test_out_of_time_nothing_is_begun_what_runs_is_given_up_and_a_line_says_so(tmp_path):
    (tmp_path / "test_times.py").write_text(TIMES)
    command = [sys.executable, "-c", RUN, tmp_path]
    run = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    first, second = run.stdout.split("1 passed")
    assert "not run" not in first
    assert "3 tests were not run in 100 s: `make test` runs all" in second
    assert "3 skipped" in second
    assert "error" not in second
