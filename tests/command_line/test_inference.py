"""The command that fits: what it prints, how it stops, and what it was told."""

import json
import os

import numpy as np
import pytest
import xarray as xr

import hierattn
from hierattn.command_line import console, fits, inference
from hierattn.inference import calibration
from hierattn.inference.course.watching import Counting
from hierattn.inference.methods.networkwise import MOST_DRAWS, Networkwise
from tests.inference import tiny

TRUTH = {"score_scale": 1.5, "value_scale": 0.7}


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

    def fit_progress(*told):
        bars.append(told)
        return console.fit_progress(*told)

    monkeypatch.setattr(inference, "fit_progress", fit_progress)
    fit = ("fit", file, "--out", tmp_path / "fit.nc")
    assert run(*fit)[0] == run(*fit, "--method", "nuts", "--most-draws", 300, "--chains", 2)[0] == 130
    assert interrupted["method"].most_draws == 300
    assert bars == [("networkwise", 400 + MOST_DRAWS, 400), ("nuts", 500 + 300, 200)]
    assert run(*fit, "--draws", 7)[0] == 130
    assert interrupted["method"] == (Networkwise(most_draws=7),)  # so that the reason for it is told, too
    code, _, err = run(*fit, "--method", "moments", "--draws", 7)
    assert code == 2
    assert "--draws: expected a method that samples chains, got moments" in err


class Screen:
    """Rich's progress, which remembers what it was told last."""

    def __init__(self):
        self.shown, self.console = {}, self

    def add_task(self, description, **told):
        self.update(0, description=description, **told)
        return 0

    def update(self, task, **told):
        self.shown |= told

    def print(self, text, **_):
        self.shown["said"] = text


def test_the_bar_says_phase_effective_draws_and_how_many_more_it_takes():
    """100 effective draws of 400 after 500 steps: 2,000 steps, if they come as fast as they did."""
    screen = Screen()
    watch = Counting(console.Bar(screen, "networkwise", 20_400, 400), warm_up=400)
    assert screen.shown == {"description": "networkwise: warm-up", "total": 20_400, "completed": 0}
    for _ in range(10):
        watch.step(50)
    assert screen.shown == {"description": "networkwise: sampling", "total": 20_400, "completed": 500}
    watch.effective(100.0)
    assert screen.shown["description"] == "networkwise: sampling, 100 of 400 effective draws"
    assert screen.shown["total"] == 2000
    watch.effective(0.0)
    assert screen.shown["total"] == 20_400
    watch.phase("likelihoods")
    watch.say("a line")
    assert screen.shown["description"], screen.shown["total"] == ("networkwise: likelihoods", None)
    assert screen.shown["said"] == "hierattn: a line"


def test_the_compiler_is_told_before_anything_else(run, monkeypatch, tmp_path):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    run("fit", tmp_path / "nothing.npz", "--out", tmp_path / "fit.nc")
    assert os.environ["XLA_FLAGS"] == inference.COMPILER
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    run("fit", tmp_path / "nothing.npz", "--out", tmp_path / "fit.nc")
    assert os.environ["XLA_FLAGS"] == "--mine"


ROW = dict.fromkeys(("mean", "sd", "eti90_lb", "eti90_ub", "rhat", "ess_bulk", "ess_tail"), 1.0) | {"identified": True}
RECORD = {"verdict": "CONVERGED", "reasons": [], "model": "m", "method": "nuts", "why": "w", "seconds": 1, "out": "o"}


def test_arrays_are_printed_as_one_line(capsys):
    """After the parameters."""
    K = {"name": "K", "shape": [3, 3], "entries": 3, "mean_least": -0.5, "mean_most": 0.25, "sd_least": 0.1, "sd_most": 0.2}
    known = K | {"rhat_most": 1.004, "ess_bulk_least": 812.3, "ess_tail_least": 500.0}
    computed = K | {"name": "kappa", "rhat_most": None, "ess_bulk_least": None, "ess_tail_least": None}
    rows = {"score_scale": ROW | {"rhat": None}, "K[0,1]": ROW, "K[0,2]": ROW}
    fits.print_fit(RECORD | {"parameters": rows, "arrays": [known, computed]})
    score, first, second = capsys.readouterr().out.splitlines()[3:]
    assert score.split() == ["score_scale", "1", "1", "1", "1", "-", "1", "1"]
    words = "3 x 3, 3 entries: means -0.5 to 0.25, sds 0.1 to 0.2"
    assert first.split(maxsplit=1) == ["K", f"{words}, R-hat at most 1.004, ess_bulk at least 812"]
    assert second.split(maxsplit=1) == ["kappa", words]


def test_after_a_budget_the_next_command_goes_on_where_it_ended():
    record = RECORD | {"reasons": [{"code": "budget", "message": "", "numbers": {"draws": 100}}]}
    told = fits.next_command(record, 300, ["fit", "y.npz", "--budget", "9s", "--force"])
    assert told == "hierattn fit y.npz --budget none --resume --force"


def test_numbers_of_heads_are_a_table(run, file, interrupted, tmp_path, capsys):
    """The best first; and the option that asks for it."""
    rows = [{"heads": 1, "log_evidence": -35.2, "log_evidence_error": 2.8, "difference": 0.0, "difference_error": 0.0}]
    rows += [rows[0] | {"heads": 2, "difference": 129.0, "difference_error": 24.9}]
    fits.print_fit(RECORD | {"parameters": {}, "arrays": [], "heads_tried": rows})
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.split() == ["1", "-35.2", "+-", "2.8", "best"]
    assert second.split() == ["2", "-35.2", "+-", "2.8", "-129.0", "+-", "24.9"]
    fit = ("fit", file, "--out", tmp_path / "fit.nc")
    assert run(*fit)[0] == 130
    assert interrupted["try_heads"] == "auto"
    assert run(*fit, "--try-heads", "none")[0] == 130
    assert interrupted["try_heads"] == ()
    assert run(*fit, "--try-heads", "1,4")[0] == 130
    assert interrupted["try_heads"] == (1, 4)
    assert "--try-heads: expected whole numbers with commas between them" in run(*fit, "--try-heads", "all")[2]
    assert interrupted["budget"].seconds == 300
    assert run(*fit, "--budget", "90s")[0] == 130
    assert interrupted["budget"].seconds == 90
    assert "--budget: expected a time such as 90s" in run(*fit, "--budget", "soon")[2]


COMMAND = ["fit", "my file.npz", "--most-draws", "300", "--force", "--seed=3"]
NEXT = "hierattn fit 'my file.npz' --seed=3 --draws 600 --force"


@pytest.mark.parametrize(
    ("verdict", "codes", "draws", "expected"),
    [
        ("NOT CONVERGED", ["rhat"], 300, NEXT),
        ("NOT CONVERGED", ["few_networks", "ess"], 300, NEXT),
        ("NOT CONVERGED", ["ess", "divergences"], 300, None),  # more of the same
        ("NOT CONVERGED", ["ess"], None, None),
        ("CONVERGED", ["few_networks"], 300, None),
        ("CONVERGED", ["budget"], 300, "hierattn fit 'my file.npz' --most-draws 300 --seed=3 --budget none --force"),
    ],
)
def test_not_converged_says_what_to_type(verdict, codes, draws, expected, capsys):
    record = RECORD | {"verdict": verdict, "reasons": [{"code": code, "message": code, "numbers": {}} for code in codes]}
    record |= {"parameters": {}, "arrays": [], "next": fits.next_command(record, draws, COMMAND)}
    assert record["next"] == expected
    fits.print_fit(record)
    assert (f"next: {expected}" in capsys.readouterr().out) == (expected is not None)


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


def test_calibrate_keeps_what_is_done(run, tmp_path, monkeypatch):
    """Ranks, coverage and truths of every data set come back through the sweep's file; a data set that is there is not made."""
    made, rng = [], np.random.default_rng(0)

    def replicate(design, seed, number):
        made.append((number, seed, design.networks, design.tokens, design.method))
        if number == 3 and len(made) == 4:
            raise KeyboardInterrupt
        covered = {name: rng.random(4) < 0.9 for name in calibration.PARAMETERS}
        ranks = {name: int(rng.integers(100)) for name in (*calibration.PARAMETERS, "new_network")}
        found.append(calibration.Replicate(ranks, {n: list(map(bool, x)) for n, x in covered.items()}, True, TRUTH))
        return found[-1]

    found = []
    monkeypatch.setattr(calibration, "replicate", replicate)
    monkeypatch.setattr(calibration, "SIMULATED", 200)
    how = ("calibrate", "--replicates", 5, "--networks", 7, "--one-token", "--seed", 3, "--out", tmp_path / "c.json")
    assert run(*how, "--keep", tmp_path / "c.zarr")[0] == 130
    assert not (tmp_path / "c.json").exists()
    code, out, _ = run(*how, "--keep", tmp_path / "c.zarr", "--resume", "--json")
    assert code == 0
    assert made == [(k, 3, 7, [0], "auto") for k in (0, 1, 2, 3, 3, 4)]
    record = json.loads((tmp_path / "c.json").read_text())
    assert [each["ranks"] for each in record["every_replicate"]] == [each.ranks for each in found]
    assert [each["covered"] for each in record["every_replicate"]] == [each.covered for each in found]
    assert record["every_replicate"][0]["truth"] == TRUTH
    assert json.loads(out) == calibration.summarise(found)
