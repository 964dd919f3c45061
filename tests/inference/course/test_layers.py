"""Fits of several layers: a row for each, whatever becomes of the others; kept, resumed, within one budget."""

import json

import numpy as np
import pytest

from hierattn import InputError, Observations, fit
from hierattn.inference import predictions
from hierattn.inference.course.layers import lines
from hierattn.observed.fits import read_fit
from tests.inference import drawn, tiny
from tests.inference.course.ticking import Ear, Ticking

Y = drawn.outputs(tiny.LAYER, tiny.K, 12, 4)


@pytest.fixture(autouse=True)
def no_predictions(monkeypatch):
    """Predictions, which take a while to compile, replaced by zeros."""

    def new_networks(problem, parameters, width, seed):
        return [np.zeros((1, 1, problem.observations.networks, problem.observations.s, 1)) for _ in parameters]

    monkeypatch.setattr(predictions, "new_networks", new_networks)


def layer(scale=1.0):
    return Observations(scale * Y, kernel=tiny.K, heads=2)


def run(layers, method=None, **options):
    ear = Ear()
    plain = {"chains": 2, "log_likelihood": False, "try_heads": (), "advance": ear}
    return fit(layers, method=method or Ticking(tick=0.0, most_draws=400), **plain | options), ear


def test_every_layer_has_a_row_and_a_file(tmp_path):
    """One fails, and says why; the others do not suffer. The same draws as alone."""
    out = tmp_path / "fits"
    given = {"first": layer(), "wrong": np.ones(3), "second": layer(2.0)}
    found, ear = run(given, out=out)
    assert [row["layer"] for row in found.rows] == ["first", "wrong", "second"]
    assert [row["verdict"] for row in found.rows] == ["CONVERGED", "FAILED", "CONVERGED"]
    assert "expected Observations, or the path of a file of outputs, got ndarray" in found.rows[1]["message"]
    assert "layer second, 3 of 3" in ear.said
    assert sorted(path.name for path in out.iterdir()) == ["first.nc", "layers.json", "second.nc"]
    assert json.loads((out / "layers.json").read_text()) == found.rows
    alone, _ = run(layer(2.0))
    np.testing.assert_array_equal(found.fits["second"]["posterior"]["score_scale"], alone["posterior"]["score_scale"])
    np.testing.assert_array_equal(read_fit(out / "second.nc")["posterior"]["score_scale"], alone["posterior"]["score_scale"])
    table = json.loads(alone.attrs["parameters"])
    for name in ("score_scale", "value_scale"):
        assert found.rows[2][name] == table[name]["mean"]
        assert found.rows[2][f"{name}_eti90_ub"] == table[name]["eti90_ub"]
    title, first, wrong, _ = str(found).splitlines()
    assert title.split() == ["layer", "verdict", "score_scale", "value_scale", "networks", "seconds"]
    assert first.split()[:3] == ["first", "CONVERGED", f"{found.rows[0]['score_scale']:.4g}"]
    assert wrong.split()[:5] == ["wrong", "FAILED", "-", "-", "-"]
    assert list(lines(found.rows)) == str(found).splitlines()


def test_errors_of_ours_are_rows_too_and_ctrl_c_is_none():
    class Broken(Ticking):
        def sample(self, problem, run):
            raise ZeroDivisionError("a\nb")

    found, _ = run([layer()], Broken())
    assert found.rows[0]["message"] == "ZeroDivisionError: a b"
    assert found.fits == {}

    class Stopped(Ticking):
        def sample(self, problem, run):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([layer()], Stopped())


def test_what_is_whole_is_not_fitted_again(tmp_path):
    """The second layer's budget ended; with --resume it goes on, and the first one stays as it is."""
    out, method = tmp_path / "fits", Ticking(tick=1.0, good=300, most_draws=1000)
    found, _ = run({"a": layer(), "b": layer(2.0)}, method, out=out, budget=method.clock.budget(200.0))
    assert {row["verdict"] for row in found.rows} == {"NOT CONVERGED"}
    assert all("budget" in row["message"] for row in found.rows)
    with pytest.raises(InputError, match=r"expected a folder without a\.nc, got one that has it; use --force, or --resume"):
        run({"a": layer()}, out=out)
    one, _ = run({"a": layer()}, method, out=out, resume=True)
    before = (out / "a.nc").read_bytes()
    assert one.rows[0]["verdict"] == "CONVERGED"
    both, ear = run({"a": layer(), "b": layer(2.0)}, method, out=out, resume=True)
    assert [row["verdict"] for row in both.rows] == ["CONVERGED"] * 2
    assert (out / "a.nc").read_bytes() == before
    assert len([said for said in ear.said if "layer" in said]) == 2
    assert sorted(path.name for path in out.iterdir()) == ["a.nc", "b.nc", "layers.json"]


def test_each_layer_has_its_share_of_the_budget_that_is_left():
    """60 s: 30 for the first, which takes 22; then all that is left."""
    method = Ticking(tick=0.0, good=0, most_draws=400)
    found, ear = run([layer(), layer()], method, budget=method.clock.budget(60.0))
    told = [said.rpartition("budget ")[2] for said in ear.said if "budget" in said]
    assert told == ["30 s", "50 s"]
    assert [row["seconds"] for row in found.rows] == [10.0, 10.0]


def test_names_files_and_no_layers(tmp_path):
    np.savez(tmp_path / "y.npz", outputs=np.stack([Y, 2 * Y]), kernel=tiny.K, heads=2)
    found, _ = run([tmp_path / "y.npz"])
    assert list(found.fits) == ["layer_0", "layer_1"]
    mixed, _ = run([layer(), tmp_path / "nowhere.npz"])
    assert [row["layer"] for row in mixed.rows] == ["layer_0", "layer_1"]
    assert "expected a file, got none" in mixed.rows[1]["message"]
    with pytest.raises(InputError, match="observations: expected at least one layer, got none"):
        fit([])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder for the fits of 1 layers, got a file"):
        run([layer()], out=tmp_path / "file")
    with pytest.raises(InputError, match="expected a folder to write in, got none"):
        run([layer()], out=tmp_path / "nowhere" / "fits")
