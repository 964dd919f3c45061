"""A run that is killed anywhere goes on as if it had not been: in-process for every moment, and by SIGKILL for whole fits."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import count
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

from hierattn import InputError
from hierattn.inference import checkpoints
from hierattn.inference.checkpoints import Checkpoint, in_chunks
from hierattn.inference.fitting import fit, lookup, route
from hierattn.inference.problem import LAYER_NAMES, pose
from tests.inference import tiny

ROOT = Path(__file__).parents[2]
SETTINGS = {"seed": 3, "outputs": "abc"}
CHUNKS = 4


class Killed(BaseException):
    """What stands for SIGKILL: nothing catches it."""


def step(state, k):
    """A chunk of three draws of a process with memory, of which the first one is warm-up."""
    x = state["x"]
    draws = []
    for _ in range(3):
        x = np.cos(3 * x + k)
        draws.append(x)
    return {"x": x, "kept": (state["kept"][0] + 1,)}, {} if k == 0 else {"draws": np.array(draws)}


def run(folder, resume, step=step):
    """All draws, of a checkpointed run or (folder None) one that is not."""
    checkpoint = None if folder is None else Checkpoint(folder, SETTINGS, resume)
    for done in in_chunks(step, {"x": np.array(0.5), "kept": (np.array(0),)}, checkpoint):
        if len(done) >= CHUNKS:
            if checkpoint is not None:
                checkpoint.remove()
            return np.concatenate([part["draws"] for part in done[1:]])
    raise AssertionError


def test_a_checkpoint_changes_nothing_and_leaves_nothing(tmp_path):
    np.testing.assert_array_equal(run(tmp_path / "run", False), run(None, False))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("moment", range(CHUNKS))
def test_killed_while_a_chunk_is_computed(tmp_path, moment):
    def killed(state, k):
        if k == moment:
            raise Killed
        return step(state, k)

    with pytest.raises(Killed):
        run(tmp_path / "run", False, killed)
    chunks = []

    def counted(state, k):
        chunks.append(k)
        return step(state, k)

    np.testing.assert_array_equal(run(tmp_path / "run", True, counted), run(None, False))
    assert chunks == list(range(moment, CHUNKS))  # what was finished is not done again


@pytest.mark.parametrize("moment", range(2 * CHUNKS + 1))
@pytest.mark.parametrize("written", [False, True], ids=["half a file", "before it is renamed"])
def test_killed_while_a_file_is_written(tmp_path, monkeypatch, moment, written):
    """At each of the writes; what the kill leaves of the file stays beside the others, as after a real one."""
    calls, real = count(), checkpoints.whole_file

    @contextmanager
    def writing(path, force):
        now = next(calls) == moment
        with real(path, force=force) as temporary:
            if not now or written:
                yield temporary
            if now:
                (path.parent / f".{path.name}.torn").write_bytes(temporary.read_bytes() or b"PK torn")
                raise Killed

    monkeypatch.setattr(checkpoints, "whole_file", writing)
    with pytest.raises(Killed):
        run(tmp_path / "run", False)
    monkeypatch.setattr(checkpoints, "whole_file", real)
    assert list((tmp_path / "run").glob(".*.torn"))
    np.testing.assert_array_equal(run(tmp_path / "run", True), run(None, False))
    assert not (tmp_path / "run").exists()


def begun(folder):
    """An unfinished run of one chunk."""
    checkpoint = Checkpoint(folder, SETTINGS, False)
    checkpoint.save(0, *step({"x": np.array(0.5), "kept": (np.array(0),)}, 0))
    return folder


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 4, "outputs": "abc"}, "expected seed = 3, as when the run began, got 4"),
        ({"seed": 3, "outputs": "xyz"}, "expected outputs = abc, as when the run began, got xyz"),
        ({"seed": 3, "outputs": "abc", "heads": 2}, "expected heads = None, as when the run began, got 2"),
        ({"outputs": "abc"}, "expected seed = 3, as when the run began, got None"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, settings, words):
    folder = begun(tmp_path / "run")
    with pytest.raises(InputError) as raised:
        Checkpoint(folder, settings, True)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert (folder / "state.npz").exists()


def test_an_unfinished_run_is_not_overwritten_unasked(tmp_path):
    folder = begun(tmp_path / "run")
    with pytest.raises(InputError, match="expected no unfinished run, got one; go on with --resume"):
        Checkpoint(folder, SETTINGS, False)


def test_folders_of_others_are_neither_used_nor_removed(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="expected a folder for an unfinished run, got other files"):
        Checkpoint(tmp_path, SETTINGS, True)
    with pytest.raises(InputError, match="expected a folder for an unfinished run, got other files"):
        Checkpoint(tmp_path / "thesis.tex", SETTINGS, True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["state.npz", "draws_00000.npz"])
def test_damaged_files_are_refused_in_one_line(tmp_path, name):
    folder = begun(tmp_path / "run")
    (folder / name).write_bytes((folder / name).read_bytes()[:-30])
    with pytest.raises(InputError) as raised:
        Checkpoint(folder, SETTINGS, True).load({"x": 0.0, "kept": (0,)})
    assert "got damaged files" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "kills"),
    [
        pytest.param("limit_law", (2,), id="networkwise"),
        pytest.param("limit_law", (2, 2), id="networkwise, twice", marks=pytest.mark.slow),
        pytest.param("student_t", (2,), id="nuts", marks=pytest.mark.slow),
    ],
)
def test_a_fit_killed_by_sigkill_goes_on_as_if_it_had_not_been(tmp_path, model, kills):
    """In another process; both for the chunk that was not saved, and after others that were."""
    out = tmp_path / "fit.nc"
    saved = [0]
    for chunks in kills:
        killed = subprocess.run([sys.executable, "-m", "tests.inference.tiny", out, model, str(chunks)], cwd=ROOT)
        assert killed.returncode == -signal.SIGKILL
        saved.append(len(list((tmp_path / "fit.nc.resume").glob("draws_*.npz"))))
        assert saved[-1] == saved[-2] + chunks - 1
        assert not out.exists()
    method = tiny.NETWORKWISE if model == "limit_law" else tiny.NUTS
    how = {"method": method, "chains": 2, "seed": 5, "out": out, "resume": True, "log_likelihood": False}
    with pytest.raises(InputError, match=r"expected kernel = .*, as when the run began"):
        fit(tiny.observations(kernel=2 * tiny.K), model, **how)
    with pytest.raises(InputError, match=rf"expected {method.name}: most_draws = {method.most_draws}, as when the run began"):
        fit(tiny.observations(), model, **how | {"method": replace(method, most_draws=7)})
    resumed = fit(tiny.observations(), model, **how)
    problem = pose(tiny.observations(), tiny.LAYER, lookup(model), None)
    whole = route(problem, method, seed=5, chains=2)
    assert resumed.attrs["method"] == method.name
    for name, draws in whole.draws.items():
        np.testing.assert_array_equal(resumed["posterior"][name], draws)
    for name, statistic in whole.statistics.items():
        np.testing.assert_array_equal(resumed["sample_stats"][name], statistic)
    assert [path.name for path in tmp_path.iterdir()] == ["fit.nc"]


def test_settings_tell_all_that_matters():
    """Two problems that would give other draws never have the same settings."""
    priors = (
        {"score_scale": dist.LogNormal(0.0, 1.0)},
        {"score_scale": dist.LogNormal(0.0, 0.9)},
        {"score_scale": dist.HalfNormal(1.0)},
    )
    changes = [{"mask": "causal"}, {"bias": np.eye(3)}, {"score_function": "identity"}, {"window": 2}, {"cap": 2.0}]
    changes += [{"qk_norm": "rms", "qk_eps": eps, "sigma_k": sigma} for eps, sigma in ((0.0, 1.0), (0.1, 1.0), (0.1, 2.0))]
    layers = [tiny.LAYER.replace(**x) for x in changes]
    other = [tiny.observations(tokens=[0, 2, 1]), tiny.observations(kernel="identity"), tiny.observations(networks=3)]
    problems = [pose(tiny.observations(), tiny.LAYER, lookup(name), None) for name in ("limit_law", "infinite_heads")]
    problems += [pose(tiny.observations(), layer, lookup("limit_law"), None) for layer in layers]
    problems += [pose(tiny.observations(), tiny.LAYER, lookup("limit_law"), prior) for prior in priors[1:]]
    problems += [pose(obs, tiny.LAYER, lookup("limit_law"), None) for obs in other]
    told = [json.dumps(problem.settings(), sort_keys=True) for problem in problems]
    assert len(set(told)) == len(told)
    scales = {"sigma_q", "sigma_k", "sigma_v", "sigma_o", "qk_gain"}
    assert {*LAYER_NAMES} == {field.name for field in fields(tiny.LAYER)} - scales  # a field that is new counts too
    same = pose(tiny.observations(), tiny.LAYER.with_scales(3.0, 4.0), lookup("limit_law"), priors[0])
    assert json.dumps(same.settings(), sort_keys=True) == told[0]
