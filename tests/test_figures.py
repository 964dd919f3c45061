"""Every figure script runs, in its quick form, and keeps its numbers."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hierattn.numerics import rqmc

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """All of them, in this process, which spares imports."""
    out = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "analysis")
        patch.setenv("MPLBACKEND", "agg")
        patch.setattr(rqmc, "BUDGET", 2**16)  # of a mean over scores, to .001 or so
        script = import_module("figures")
        options = ["--quick", "--out", str(out)]
        for name in script.NAMES:
            script.run(name, options)
    return {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}, out


def test_every_script_has_a_picture_and_its_numbers(figures):
    records, out = figures
    paper = {"fig1", "fig2a", "fig2b", "fig3", "fig4", "fig5"}
    single = {"hierarchy", "kl_rate", "kurtosis_heads", "head_dim", "theorem_sums", "gaussian_safe"}
    assert set(records) == paper | single | {"depth_tails", "trainability"}
    for name, record in records.items():
        assert record["command"] == f"python analysis/{name}.py --quick"
        assert record["seed"] == 0
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_draws_in_processes_of_its_own(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "analysis")
    monkeypatch.setenv("MPLBACKEND", "agg")
    script = import_module("figures")
    monkeypatch.setattr(script, "NAMES", script.NAMES[-2:])
    monkeypatch.setattr(sys, "argv", ["figures.py", "--quick", "--out", str(tmp_path)])
    script.main()
    assert {path.stem for path in tmp_path.glob("*.json")} == {*script.NAMES}


def test_a_figure_that_is_not_quick_is_a_pdf_too(figures, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "analysis")
    script, plotting = import_module("fig2a"), import_module("plotting")
    plotting.main("fig2a", lambda quick: figures[0]["fig2a"], script.draw, ["--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"fig2a.json", "fig2a.pdf", "fig2a.png"}
    assert (tmp_path / "fig2a.pdf").read_bytes().startswith(b"%PDF")


def test_numbers_of_figure_1_are_the_known_ones(figures):
    widths = figures[0]["fig1"]["widths"]
    for n, known in {"16": 2.22e-2, "64": 2.13e-3, "256": 1.58e-4}.items():
        assert abs(widths[n]["kl"] - known) < 5 * widths[n]["kl_error"] + 0.005 * known
        assert len(widths[n]["kl_trials"]) == 10
        assert 3 * max(widths[n]["kl_trials"]) > widths[n]["kl"]


def test_numbers_of_figure_2a_are_those_of_the_formula(figures):
    record = figures[0]["fig2a"]
    for name in ("variance", "kurtosis"):
        found = record["scores"]["sqrt"]
        assert abs(found[name] - record["theory"][name]) < 5 * found[f"{name}_error"]
    assert record["scores"]["linear"]["variance"] < 1.1 / 256


def test_the_map_of_safety_orders_heads(figures):
    for row in figures[0]["gaussian_safe"]["scale"].values():
        needed = [record["networks_needed"] for record in row.values()]
        assert needed == sorted(needed)
