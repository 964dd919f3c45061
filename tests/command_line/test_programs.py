"""The command for programs."""

import json
from pathlib import Path

import numpy as np
import pytest

from hierattn import kernels

PROGRAMS = Path(__file__).parents[2] / "analysis" / "programs.py"
SMALL = ("--width", 16, "--networks", 300)


def test_a_program_its_kernels_and_the_comparison(run):
    code, out, err = run("netsor", PROGRAMS, "--program", "relu_attention", *SMALL)
    assert (code, err) == (0, "")
    assert out.startswith("ReLU attention\n")
    assert "p^{i,j} = <Q x^i, K x^j> / sqrt(n)" in out
    assert "kernel x +- " in out
    assert "score covariance +- " in out
    assert "... 9 rows and columns; --json has all" in out
    assert "method closed form; width 16, 300 networks against 100000 of the limit:" in out
    assert any(line.startswith("projection p value") for line in out.splitlines())


def test_json_has_everything(run, tmp_path):
    command = ("netsor", PROGRAMS, "--program", "relu_attention", *SMALL, "--seed", 3, "--json")
    code, out, err = run(*command, "--graph", tmp_path / "graph.svg")
    record = json.loads(out)
    assert (code, err) == (0, "")
    K = kernels.activation("relu", preactivation=kernels.equicorrelated(3, 0.5))
    np.testing.assert_allclose(record["kernel_x"], K, rtol=1e-13)
    np.testing.assert_allclose(record["score_covariance"], 4 * np.kron(K, K), rtol=1e-13)
    assert record["kernel_x_error"] < 1e-12
    assert (record["width"], record["networks"], record["seed"], record["method"]) == (16, 300, 3, "closed form")
    assert len(record["variance_finite"]) == 3
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    code, _, err = run(*command, "--graph", tmp_path / "graph.svg")
    assert code == 2
    assert "expected a new file" in err


def test_a_file_with_one_program_needs_no_name(run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from hierattn.netsor import *\nprogram = Program('mine', matrix('W') @ nonlin('relu', vector('h')))\n")
    code, out, _ = run("netsor", file, *SMALL, "--json")
    record = json.loads(out)
    assert code == 0
    assert record["program"].startswith("mine\n")
    assert record["variance_limit"][0] == pytest.approx(0.5, abs=5 * record["variance_limit_error"])
    assert "score_covariance" not in record


BAD = {
    "missing": (None, (), "expected a .py file with a program, got none; check the path"),
    "no program": ("x = 1\n", (), "expected a program, got none; make one with hierattn.netsor.Program"),
    "broken": ("1 / 0\n", (), "expected a file that Python can run, got ZeroDivisionError"),
    "condition": (
        "from hierattn.netsor import *\nW, x = matrix('W'), vector('x')\np = dot(W @ x, W @ x)\n",
        (),
        "expected two different matrices (two matrices), got W twice; use a second one",
    ),
    "several": (PROGRAMS.read_text(), (), "expected one program, got attention, relu_attention"),
    "unknown": (PROGRAMS.read_text(), ("--program", "nonsense"), "--program: expected one of attention, relu_attention"),
    "width": (PROGRAMS.read_text(), ("--program", "gate", "--width", 0), "--width"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_and_options(run, tmp_path, name):
    text, options, words = BAD[name]
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    code, out, err = run("netsor", file, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_progress_bar_on_a_terminal(run, monkeypatch):
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, err = run("netsor", PROGRAMS, "--program", "gate", "--width", 4, "--networks", 20)
    assert code == 0
    assert "networks" in err
