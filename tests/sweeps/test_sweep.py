"""Sweeps in this process: results by name, in memory and in files; points that fail; what goes on after an end too early."""

import json

import numpy as np
import pytest
import xarray as xr
import zarr

import hierattn as ha
from hierattn import InputError
from hierattn.inference import calibration
from hierattn.sweeps import functions
from hierattn.sweeps.plan import plan
from hierattn.sweeps.store import Store, read_sweep
from tests.sweeps import toy

GRID = {"a": [1, 2, 3], "b": [0.5, 1.5]}


def same(x, y):
    """All numbers, to the bit."""
    assert set(x) == set(y)
    for name in set(x) - {"seconds"}:
        np.testing.assert_array_equal(x[name].values, y[name].values)
        assert x[name].dims == y[name].dims


def test_results_are_those_of_a_loop_and_a_file_holds_the_same(tmp_path):
    found = ha.sweep(toy.numbers, GRID, seed=4)
    planned = plan(toy.numbers, GRID, seed=4)
    for k in range(6):
        point = found.sel(planned.points.point(k))
        expected = toy.numbers(**planned.options(k))
        assert point["mean"].item() == expected["mean"]
        np.testing.assert_array_equal(point["rows"], expected["rows"])
        assert np.isnan(point["none"])
    assert found["rows"].dims == ("a", "b", "layer")
    kept = ha.sweep(toy.numbers, GRID, seed=4, out=tmp_path / "x.zarr")
    same(found, kept)
    same(kept, ha.read_sweep(tmp_path / "x.zarr"))
    assert json.loads(kept.attrs["plan"])["over"] == GRID
    assert kept.attrs["seed"] == 4
    raw = xr.open_zarr(tmp_path / "x.zarr", consolidated=False)  # one array, one chunk for each point
    assert raw["results"].sel(quantity="mean").values.tolist() == found["mean"].values.tolist()
    assert len(list((tmp_path / "x.zarr" / "results" / "c").rglob("*"))) == 3 + 3 * 2 + 6


def test_a_point_that_fails_does_not_stop_the_others(tmp_path):
    said, steps = [], []
    found = ha.sweep(toy.fails, {"a": [1, 2, 3]}, out=tmp_path / "x.zarr", say=said.append, advance=steps.append)
    assert found["message"].values.tolist() == ["", "ZeroDivisionError: a is 2", ""]
    assert np.isfinite(found["mean"].values).tolist() == [True, False, True]
    assert said == ["a 2: ZeroDivisionError: a is 2"]
    assert steps == [0, 1, 1, 1]
    same(found, ha.sweep(toy.fails, {"a": [1, 2, 3]}))
    other = ha.sweep(toy.other, {"a": [1, 2, 3]})
    assert (
        other["message"].values.tolist()[1]
        == "function: expected of shape (1,) as at other points, got of shape (2,); look at x"
    )


def test_all_fail(tmp_path):
    found = ha.sweep(toy.fails, {"a": [2]}, out=tmp_path / "x.zarr")
    assert set(found) == {"message"}
    assert "numbers for x" in ha.sweep(lambda a: {"x": "word"}, {"a": [1]})["message"].item()
    assert "a dict of numbers" in ha.sweep(lambda a: a, {"a": [1]})["message"].item()


def test_what_is_there_is_not_computed_again(tmp_path):
    path, calls = tmp_path / "x.zarr", []

    def interrupted(done):
        calls.append(done)
        if sum(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ha.sweep(toy.numbers, GRID, out=path, advance=interrupted)
    assert np.isfinite(read_sweep(path)["mean"]).sum() == 4
    steps = []
    found = ha.sweep(toy.numbers, GRID, out=path, resume=True, advance=steps.append)
    assert steps == [4, 1, 1]
    same(found, ha.sweep(toy.numbers, GRID))
    with pytest.raises(InputError, match=r"resume: expected over = .*, as when the sweep began, got .*; give the same plan"):
        ha.sweep(toy.numbers, {"a": [1]}, out=path, resume=True)
    zarr.open_group(path, mode="r+").attrs["version_jax"] = "0.1"
    with pytest.raises(InputError, match=r"resume: expected version of jax = 0.1, as when the sweep began, got"):
        ha.sweep(toy.numbers, GRID, out=path, resume=True)
    with pytest.raises(InputError, match=r"expected a new sweep, got one that exists; use --resume, --force, or another name"):
        ha.sweep(toy.numbers, GRID, out=path)
    with pytest.raises(InputError, match="resume: expected the file of the sweep that goes on, got no out"):
        ha.sweep(toy.numbers, GRID, resume=True)


def test_failed_points_are_tried_again(tmp_path, monkeypatch):
    path = tmp_path / "x.zarr"
    ha.sweep(toy.fails, {"a": [1, 2]}, out=path)
    planned = plan(toy.fails, {"a": [1, 2]})
    store = Store(path, planned)
    store.open({})
    assert store.done().tolist() == [True, False]
    monkeypatch.setattr(toy, "ZeroDivisionError", KeyError, raising=False)
    found = ha.sweep(toy.fails, {"a": [1, 2]}, out=path, resume=True)
    assert found["message"].values[1].startswith("KeyError")


def test_nothing_is_written_for_a_bad_plan_and_nothing_else_is_overwritten(tmp_path):
    for bad in ({"function": "law", "over": {}}, {"function": "law", "over": {"x": [1]}}):
        with pytest.raises(InputError):
            ha.sweep(**bad, out=tmp_path / "x.zarr")
    with pytest.raises(InputError, match="expected a folder to write in, got none"):
        ha.sweep(toy.numbers, GRID, out=tmp_path / "no" / "x.zarr")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="expected a sweep to overwrite, got a folder of another kind"):
        ha.sweep(toy.numbers, GRID, out=tmp_path / "mine", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(InputError, match="expected a sweep, got"):
        ha.read_sweep(tmp_path / "mine")


def test_the_laws_own_numbers():
    found = ha.sweep("law", {"heads": [1, 2], "cosine": [0.0, 0.3]}, {"moments": True, "tokens": 3})
    K = ha.kernels.equicorrelated(3, 0.3)
    assert found["excess_kurtosis"].sel(heads=2, cosine=0.3) == ha.Law(ha.Architecture(heads=2), K).moments().excess_kurtosis
    assert {f"{name}_error" for name in ("variance", "excess_kurtosis")} < set(found)


def test_depth_has_layers():
    small = {"layers": 2, "width": 8, "heads": 2, "tokens": 3, "networks": 20}
    found = ha.sweep("depth", {"gain": [0.5, 1.0]}, small)
    assert found["cosine"].dims == ("gain", "layer")
    assert found["cosine"].shape == (2, 4)
    message = ha.sweep("depth", {"layers": [1]}, {"config": "config.json", "token_ids": [1]})["message"].item()
    assert message == "config: expected a config, or options of equal blocks, got both, layers; leave one out"


def test_a_replicate_is_one_of_a_calibration(monkeypatch):
    """With the design that its options describe; every rank, interval and truth has a name."""
    asked = []

    def replicate(design, seed, number):
        asked.append((design, seed, number))
        hits = {"score_scale": [False, True, True, True], "value_scale": [True] * 4}
        return calibration.Replicate(
            {"score_scale": 3, "value_scale": 50}, hits, True, {"score_scale": 1.5, "value_scale": 0.7}
        )

    monkeypatch.setattr(calibration, "replicate", replicate)
    found = functions.replicate(
        number=3, networks=20, coordinates=2, tokens=2, cosine=0.1, heads=2, head_dim=4, observed=[1], method="nuts", seed=9
    )
    design, *which = asked[0]
    assert which == [9, 3]
    assert (design.tokens, design.method) == ([1], "nuts")
    assert (design.networks, design.coordinates, repr(design.layer)) == (20, 2, repr(ha.Architecture(heads=2, head_dim=4)))
    np.testing.assert_array_equal(design.K, ha.kernels.equicorrelated(2, 0.1))
    assert (found["score_scale_rank"], found["score_scale_covered_50"], found["score_scale_covered_80"]) == (3, False, True)
    assert (found["value_scale_truth"], found["converged"]) == (0.7, True)
    assert len(found) == 2 + 2 * 4 + 1 + 2
