"""The command that fits: what it prints, how it stops, and what it was told."""

import json
import os

import numpy as np
import pytest
import xarray as xr

import hierattn
from hierattn.command_line import console, inference
from hierattn.inference.methods.networkwise import MOST_DRAWS, Networkwise
from tests.inference import tiny


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "y.npz", outputs=tiny.outputs(), kernel=tiny.K, heads=2)
    return tmp_path / "y.npz"


@pytest.fixture
def interrupted(monkeypatch):
    """A fit that is told what to do, and stopped by Ctrl-C."""
    told = {}

    def fit(observations, **options):
        told.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(hierattn, "fit", fit, raising=False)
    return told


def test_ctrl_c_says_how_to_go_on(run, file, interrupted, tmp_path):
    (tmp_path / "fit.nc.resume").mkdir()
    code, out, err = run("fit", file, "--out", tmp_path / "fit.nc")
    assert (code, out) == (130, "")
    assert err.count("\n") == 1
    assert f"hierattn: interrupted; {tmp_path}/fit.nc.resume keeps what is done" in err
    assert "the same command with --resume goes on" in err
    (tmp_path / "fit.nc.resume").rmdir()
    assert run("fit", file, "--out", tmp_path / "fit.nc")[2] == "hierattn: interrupted\n"


def test_the_bar_counts_to_what_the_method_takes_at_most(run, file, interrupted, tmp_path, monkeypatch):
    bars = []

    def progress(what, total):
        bars.append((what, total))
        return console.progress(what, total)

    monkeypatch.setattr(inference, "progress", progress)
    fit = ("fit", file, "--out", tmp_path / "fit.nc")
    assert run(*fit)[0] == run(*fit, "--method", "nuts", "--most-draws", 300)[0] == 130
    assert interrupted["method"].most_draws == 300
    assert bars == [("networkwise: at most", 400 + MOST_DRAWS), ("nuts: at most", 500 + 300)]
    assert run(*fit, "--most-draws", 7)[0] == 130
    assert interrupted["method"] == (Networkwise(most_draws=7),)  # so that the reason for it is told, too
    code, _, err = run(*fit, "--method", "moments", "--most-draws", 7)
    assert code == 2
    assert "--most-draws: expected a method that samples chains, got moments" in err


def test_the_compiler_is_told_before_anything_else(run, monkeypatch, tmp_path):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    run("fit", tmp_path / "nothing.npz", "--out", tmp_path / "fit.nc")
    assert os.environ["XLA_FLAGS"] == inference.COMPILER
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    run("fit", tmp_path / "nothing.npz", "--out", tmp_path / "fit.nc")
    assert os.environ["XLA_FLAGS"] == "--mine"


def test_matrices_are_printed_once(capsys):
    """K above its diagonal; neither the other half nor its factor."""
    row = dict.fromkeys(("mean", "sd", "eti90_lb", "eti90_ub", "rhat", "ess_bulk", "ess_tail"), 1.0) | {"identified": True}
    names = ["score_scale", *(f"{x}[{i},{j}]" for x in ("K", "L", "K_values", "L_values") for i in (0, 1) for j in (0, 1))]
    record = {"verdict": "CONVERGED", "reasons": [], "model": "m", "method": "nuts", "why": "w", "seconds": 1, "out": "o"}
    inference.print_fit(record | {"parameters": dict.fromkeys(names, row)})
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[0] for line in lines] == ["score_scale", "K[0,1]", "K_values[0,1]"]


@pytest.mark.parametrize(("verdict", "expected"), [("CONVERGED", 0), ("NOT CONVERGED", 4)])
def test_the_verdict_is_the_exit_code(run, file, tmp_path, monkeypatch, verdict, expected):
    """And nothing but the result is printed, in a pipe."""
    draws = xr.Dataset({"kappa": (("chain", "draw", "token", "token_"), np.ones((2, 3, 1, 1)))})
    tree = xr.DataTree.from_dict({"posterior": draws})
    tree.attrs = {"verdict": verdict, "reasons": "[]", "method": "nuts", "why": "w", "model": "m", "parameters": "{}"}
    monkeypatch.setattr(hierattn, "fit", lambda observations, **options: tree, raising=False)
    code, out, err = run("fit", file, "--out", tmp_path / "fit.nc", "--json")
    assert (code, err) == (expected, "")
    record = json.loads(out)
    assert (record["verdict"], record["kappa"], record["out"]) == (verdict, [[1.0]], str(tmp_path / "fit.nc"))
