"""The two commands, in this process; tests/test_package.py runs the installed program."""

import json
import sys

import numpy as np
import pytest
import xarray

import hierattn
from hierattn import Architecture, Law, cli, kernels


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["hierattn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.run()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


def test_law_in_json_is_flat_and_the_laws_own(run):
    code, out, err = run("law", "--tokens", 4, "--heads", 2, "--activation", "relu", "--json")
    record = json.loads(out)
    found = Law(Architecture(heads=2), kernels.activation("relu", 4)).moments()
    assert (code, err) == (0, "")
    assert record["variance"] == found.variance == pytest.approx(0.2547659468, abs=1e-10)
    assert record["excess_kurtosis"] == pytest.approx(0.0036189854 / 2, abs=1e-9)
    assert record["infinite_heads_variance"] == record["variance"]
    numbers = ("variance", "excess_kurtosis", "infinite_heads_variance")
    assert all(0 <= record[f"{name}_error"] < 1e-9 for name in numbers)


def test_law_in_plain_text(run):
    code, out, _ = run("law", "--heads", 2)
    assert code == 0
    assert out.splitlines()[0] == "Law(heads=2, head_dim=infinite, queries=4, keys=4, scaling='sqrt'), token 0"
    assert "variance                 0.3919714436 +- " in out


@pytest.mark.parametrize(
    ("options", "layer", "kernel", "token"),
    [
        (["--head-dim", 16], Architecture(head_dim=16), np.eye(4), 0),
        (["--mask", "causal", "--token", 2], Architecture(mask="causal"), np.eye(4), 2),
        (["--scaling", "linear"], Architecture(scaling="linear"), np.eye(4), 0),
        (["--score-scale", 2, "--value-scale", 3], Architecture(sigma_q=2.0, sigma_v=3.0), np.eye(4), 0),
        (["--tokens", 7, "--activation", "erf"], Architecture(), kernels.activation("erf", 7), 0),
    ],
)
def test_every_option_reaches_the_law(run, options, layer, kernel, token):
    record = json.loads(run("law", *options, "--json")[1])
    found = Law(layer, kernel).moments(token)
    assert (record["variance"], record["excess_kurtosis"]) == (found.variance, found.excess_kurtosis)


def test_kernel_from_a_file(run, tmp_path):
    K = kernels.rbf(3, 1.0)
    np.savetxt(tmp_path / "K.csv", K, delimiter=",")
    record = json.loads(run("law", "--kernel", tmp_path / "K.csv", "--token", 1, "--seed", 7, "--json")[1])
    assert record["variance"] == Law(Architecture(), np.loadtxt(tmp_path / "K.csv", delimiter=",")).moments(1, 7).variance


def test_zero_outputs_have_no_kurtosis(run, tmp_path):
    np.save(tmp_path / "K.npy", np.zeros((2, 2)))
    code, out, _ = run("law", "--kernel", tmp_path / "K.npy", "--json")
    assert (code, json.loads(out)["excess_kurtosis"], json.loads(out)["reasons"][0]["code"]) == (0, None, "zero_outputs")
    code, out, _ = run("law", "--kernel", tmp_path / "K.npy")
    assert code == 0
    assert "their kurtosis does not exist" in out


def test_sample_writes_draws_with_provenance(run, tmp_path):
    import jax

    file = tmp_path / "draws.nc"
    code, _, err = run("sample", "--heads", 2, "--networks", 50, "--coordinates", 3, "--scores", "--seed", 5, "--out", file)
    assert (code, err) == (0, "")
    law = Law(Architecture(heads=2), np.eye(4))
    with xarray.open_dataset(file, engine="h5netcdf") as data:
        assert data["outputs"].dims == ("network", "token", "coordinate")
        assert data["scores"].dims == ("network", "head", "query", "key")
        np.testing.assert_array_equal(data["outputs"], law.sample(jax.random.key(5), 50, 3))
        np.testing.assert_array_equal(data["scores"], law.sample_scores(jax.random.key(5), 50))
        assert data.attrs["seed"] == 5
        assert data.attrs["version_hierattn"] == hierattn.__version__
        assert data.attrs["command"].startswith("hierattn sample --heads 2")
        assert data.attrs["dtype"] == "float32"
        assert len(data.attrs["kernel_sha256"]) == 64


def test_overwriting_needs_force(run, tmp_path):
    file = tmp_path / "draws.nc"
    small = ("sample", "--networks", 2, "--coordinates", 1, "--out", file)
    assert run(*small)[0] == 0
    before = file.read_bytes()
    code, out, err = run(*small)
    assert (code, out) == (2, "")
    assert "expected a new file" in err
    assert file.read_bytes() == before
    assert run(*small, "--force", "--seed", 1, "--json")[0] == 0
    assert file.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["law", "--heads", "0"], 2, "heads: expected a positive whole number, got 0"),
        (["law", "--token", "9"], 2, "token: expected a whole number from 0 to 3, got 9"),
        (["law", "--score-scale", "-1"], 2, "--score-scale: expected numbers that are 0 or between"),
        (["law", "--tokens", "200000"], 3, "tokens: expected at most 8192 tokens"),
        (["law", "--kernel", "K.npy", "--activation", "relu"], 2, "--activation: expected either an activation or a kernel"),
        (["sample", "--out", "x" * 300 + ".nc"], 2, "expected one that can be opened, got: File name too long"),
        (["sample", "--networks", "1", "--coordinates", "3000000000", "--out", "x.nc"], 3, "expected at most"),
        (["law", "--head", "3"], 2, "No such option: --head"),
        (["law", "--activation", "swish"], 2, "'swish' is not one of 'identity', 'clip', 'relu'"),
        (["law", "--kernel", "nowhere.npy"], 2, "nowhere.npy: expected a file, got none"),
        (["laws"], 2, "No such command 'laws'"),
        (["sample"], 2, "Missing option '--out'"),
        (["sample", "--networks", "0", "--out", "x.nc"], 2, "networks: expected a positive whole number, got 0"),
        (["sample", "--networks", "1000000000000000", "--out", "x.nc"], 3, "bytes that are free"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(run, monkeypatch, tmp_path, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_tokens_must_fit_the_kernel(run, tmp_path):
    np.save(tmp_path / "K.npy", np.eye(3))
    code, _, err = run("law", "--kernel", tmp_path / "K.npy", "--tokens", 4)
    assert code == 2
    assert "--tokens: expected the kernel's 3 tokens, got 4" in err


def test_a_table_and_a_progress_bar_on_a_terminal(run, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, out, err = run("sample", "--networks", 2, "--out", tmp_path / "x.nc")
    assert "│ networks" in out
    assert "networks" in err


def test_help_lists_every_option(run):
    code, out, _ = run("law", "--help")
    assert code == 0
    for option in (
        "tokens",
        "heads",
        "activation",
        "head-dim",
        "kernel",
        "score-scale",
        "value-scale",
        "mask",
        "scaling",
        "json",
    ):
        assert f"--{option}" in out
