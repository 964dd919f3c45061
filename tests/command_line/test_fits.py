"""Fits of several layers by one command: the table, the figure, files, and the exit code of the worst."""

import json

import numpy as np
import pytest

import hierattn
from hierattn.command_line import fits as command
from hierattn.reporting.layer_figures import figure
from tests.inference import tiny
from tests.reporting import trees

Y = tiny.outputs()


@pytest.fixture
def files(tmp_path):
    """Two layers, and one whose file is no file."""
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", outputs=Y, kernel=tiny.K, heads=2)
    return [tmp_path / f"{name}.npz" for name in ("a", "b", "nowhere")]


@pytest.fixture
def told(monkeypatch):
    """Fits are made by hand, the second NOT CONVERGED if it is asked for one chain; what each was told."""
    calls = []

    def fit(observations, **options):
        calls.append(options | {"networks": observations.networks})
        tree = trees.fit(networks=4, coordinates=2, draws=3, verdict="NOT CONVERGED" if options["chains"] == 1 else "CONVERGED")
        tree.to_netcdf(options["out"], engine="h5netcdf")
        return tree

    monkeypatch.setattr(hierattn, "fit", fit, raising=False)
    return calls


@pytest.mark.parametrize(("which", "chains", "expected"), [((0, 1), 2, 0), ((0, 1, 2), 2, 2), ((0, 1, 2), 1, 4)])
def test_the_exit_code_is_that_of_the_worst(run, files, told, tmp_path, which, chains, expected):
    """4 where a verdict is NOT CONVERGED, else 2 where a layer failed."""
    code, out, err = run("fit", *(files[k] for k in which), "--out", tmp_path / "fits", "--chains", chains, "--draws", 700)
    assert code == expected
    rows = out.splitlines()
    assert [row.split()[0] for row in rows] == ["layer", *("a", "b", "nowhere")[: len(which)], "->"]
    assert rows[1].split()[2 if chains == 2 else 3] == "1.6"
    assert "hierattn: layer a, 1 of" in err
    kept = {"a.nc", "b.nc", "layers.json", "layers.svg"}
    assert {path.name for path in (tmp_path / "fits").iterdir()} == kept
    assert [call["networks"] for call in told] == [4, 4]
    assert {getattr(each, "most_draws", 700) for each in told[0]["method"]} == {700}
    assert [each.name for each in told[0]["method"]] == ["marginal", "moments", "networkwise", "nuts"]
    assert told[0]["layer"].heads == 2


def test_json_and_an_axis_of_layers(run, told, tmp_path):
    np.savez(tmp_path / "y.npz", outputs=np.stack([Y, Y]), kernel=tiny.K, heads=2)
    code, out, _ = run("fit", tmp_path / "y.npz", "--out", tmp_path / "fits", "--json", "--method", "nuts", "--networks", 3)
    record = json.loads(out)
    assert code == 0
    assert [row["layer"] for row in record["layers"]] == ["layer_0", "layer_1"]
    assert record["figure"] == str(tmp_path / "fits" / "layers.svg")
    assert told[0]["method"] == "nuts"
    assert told[1]["networks"] == 3


def test_ctrl_c_says_what_is_kept(run, files, monkeypatch, tmp_path):
    def fit(observations, **options):
        (tmp_path / "fits" / "a.nc.resume").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(hierattn, "fit", fit, raising=False)
    code, _, err = run("fit", *files, "--out", tmp_path / "fits")
    assert code == 130
    assert f"hierattn: interrupted; {tmp_path}/fits keeps what is done: the same command with --resume goes on" in err


ROW = {"layer": "a$b", "verdict": "CONVERGED", "score_scale": 1.0, "score_scale_eti90_lb": 0.5, "score_scale_eti90_ub": 1.5}
ROW |= {name.replace("score", "value"): x for name, x in ROW.items() if "score" in name}


def test_the_figure_has_every_layer():
    failed = dict.fromkeys(ROW) | {"layer": "gone", "verdict": "FAILED"}
    drawn = figure([ROW, ROW | {"layer": "slow", "verdict": "NOT CONVERGED"}, failed])
    for words in ("a$b", "slow", "gone (failed)", "score_scale", "mean and 90 % interval"):
        assert words in drawn
    assert drawn.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in drawn
    assert figure([failed]) is None
    assert command.FIGURE == "layers.svg"
