"""The commands, in this process; tests/test_package.py runs the installed program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
import xarray

import hierattn
from hierattn import Architecture, FiniteWidth, Law, RandomInputs, compare, compare_outputs, kernels, network
from hierattn.command_line import app, options
from hierattn.diagnostics.comparison import limit
from hierattn.law import token_law
from hierattn.layer.scores import SCORE_FUNCTIONS

EXAMPLES = {command.name: command.epilog.removeprefix("Example: ") for command in app.app.registered_commands}


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
        (["--head-dim", 16, "--tokens", 2], Architecture(head_dim=16), np.eye(2), 0),
        (["--mask", "causal", "--token", 2], Architecture(mask="causal"), np.eye(4), 2),
        (["--scaling", "linear"], Architecture(scaling="linear"), np.eye(4), 0),
        (["--score-scale", 2, "--value-scale", 3], Architecture(sigma_q=2.0, sigma_v=3.0), np.eye(4), 0),
        (["--tokens", 3, "--activation", "erf"], Architecture(), kernels.activation("erf", 3), 0),
        (["--score-function", "identity"], Architecture(score_function="identity"), np.eye(4), 0),
        (["--window", 2, "--token", 3], Architecture(window=2), np.eye(4), 3),
        (["--mask", "causal", "--chunk", 2, "--token", 3], Architecture(mask="causal", chunk=2), np.eye(4), 3),
        (
            ["--qk-norm", "rms", "--qk-eps", 0.3, "--score-scale", 2, "--activation", "relu"],
            Architecture(qk_norm="rms", qk_eps=0.3, qk_gain=2.0),
            kernels.activation("relu", 4),
            0,
        ),
        (["--cap", 1.5, "--sink", 0.5, "--score-scale", 2], Architecture(cap=1.5, sink=0.5, sigma_q=2.0), np.eye(4), 0),
        (["--sink", 0, "--sink-scale", 0.5], Architecture(sink=0.0, sink_scale=0.5), np.eye(4), 0),
    ],
)
def test_every_option_reaches_the_law(run, options, layer, kernel, token):
    record = json.loads(run("law", *options, "--moments", "--json")[1])
    found = Law(layer, kernel).moments(token)
    assert (record["variance"], record["excess_kurtosis"]) == (found.variance, found.excess_kurtosis)


def test_moments_alone_are_those_of_the_law_and_nothing_else_is_computed(run, monkeypatch):
    everything = json.loads(run("law", "--heads", 2, "--json")[1])
    monkeypatch.setattr(token_law, "of_token", None)
    alone = json.loads(run("law", "--heads", 2, "--moments", "--json")[1])
    assert alone == {name: everything[name] for name in alone}
    assert {"variance", "excess_kurtosis", "infinite_heads_variance"} <= set(alone)
    assert not [name for name in alone if "quantile" in name or "tail" in name]


def test_many_tokens_are_announced_on_a_terminal(run, monkeypatch):
    monkeypatch.setattr(token_law, "summary", lambda *_: {"variance": 1.0})
    many = ("law", "--tokens", 130)
    assert run(*many)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(*many)[2] == (
        "hierattn: the distribution of one token of 130 takes long, and much memory; --moments leaves it out\n"
    )
    assert run("law", "--tokens", 128)[2] == run("law", "--tokens", 130, "--moments")[2] == ""


def test_every_score_function_is_an_option_and_is_completed():
    assert options.score_functions("") == list(SCORE_FUNCTIONS)
    assert options.score_functions("soft") == ["softmax"]
    for name in SCORE_FUNCTIONS:
        assert options.build_layer(score_function=name).score_function == name


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
        (["compare"], 2, "--width: expected either --width or a file of observed outputs, got neither"),
        (["compare", "y.npy", "--width", "8"], 2, "--width: expected either --width or a file of observed outputs, got both"),
        (["compare", "--width", "8", "--kernel", "K.npy"], 2, "K.npy: expected a file, got none"),
        (
            ["compare", "--width", "8", "--kernel", "K.npy", "--activation", "relu"],
            2,
            "either an activation or a kernel, got both",
        ),
        (["law", "--score-function", "hardmax"], 2, "score_function: expected one of softmax, identity"),
        (["compare", "y.npy", "--networks", "5"], 2, "--networks: expected nothing with a file of observed outputs, got 5"),
        (["compare", "y.npy"], 2, "y.npy: expected a file, got none"),
        (["compare", "--width", "0"], 2, "width: expected a positive whole number, got 0"),
        (
            ["compare", "--width", "8", "--tokens", "0", "--networks", "32"],
            2,
            "tokens: expected a positive whole number, got 0",
        ),
        (["compare", "--width", "8", "--networks", "5"], 2, "networks: expected a whole number of at least 32, got 5"),
        (["compare", "--width", "8", "--token", "4"], 2, "token: expected a whole number from 0 to 3, got 4"),
        (["simulate", "--out", "x.nc"], 2, "Missing option '--width'"),
        (["simulate", "--width", "0", "--method", "explicit", "--out", "x.nc"], 2, "width: expected a positive whole number"),
        (["simulate", "--width", "10000000", "--method", "explicit", "--out", "x.nc"], 3, "width: expected"),
        (
            ["simulate", "--width", "8", "--networks", "0", "--out", "x.nc"],
            2,
            "networks: expected a positive whole number, got 0",
        ),
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


def test_law_prints_quantiles_and_tails(run):
    """Of |y|: a quantile is passed with its probability, within its error."""
    record = json.loads(run("law", "--tokens", 2, "--score-scale", 2, "--json")[1])
    found = Law(Architecture(sigma_q=2.0), np.eye(2)).marginal()
    for name, p in {"99": 0.01, "999": 1e-3, "9999": 1e-4}.items():
        assert 2 * found.sf(record[f"quantile_{name}"]) == pytest.approx(p, rel=1e-9)
        assert 0 <= record[f"quantile_{name}_error"] < 1e-5
    for sds in (3, 4, 5):
        assert record[f"tail_{sds}sd"] == pytest.approx(2 * found.sf(sds * np.sqrt(found.variance)), rel=1e-6)
        assert record[f"tail_{sds}sd_error"] < 1e-3 * record[f"tail_{sds}sd"]
    assert record["distribution_method"] == "quadrature"
    assert "quantile 999" in run("law", "--tokens", 2, "--score-scale", 2)[1]


@pytest.mark.parametrize("method", ["collapsed", "explicit"])
def test_simulate_writes_networks_of_finite_width(run, tmp_path, method):
    file, key = tmp_path / "y.nc", jax.random.key(5)
    options = ("--width", 8, "--tokens", 3, "--heads", 2, "--activation", "relu", "--networks", 20, "--coordinates", 2)
    command = ("simulate", *options, "--method", method, "--scores", "--seed", 5, "--out", file)
    code, _, err = run(*command)
    assert (code, err) == (0, "")
    layer, inputs = Architecture(heads=2), RandomInputs(8, 3, "relu")
    law = FiniteWidth(layer, inputs)
    if method == "collapsed":
        y, p = law.sample(key, 20, 2), law.sample_scores(key, 20)
    else:
        p, y = network.simulate(key, layer, inputs, 20, 2)
    with xarray.open_dataset(file, engine="h5netcdf") as data:
        assert data["outputs"].dims == ("network", "token", "coordinate")
        assert data["scores"].dims == ("network", "head", "query", "key")
        np.testing.assert_array_equal(data["outputs"], y)
        np.testing.assert_array_equal(data["scores"], p)
        expected = {"seed": 5, "method": method, "activation": "relu", "law": repr(law), "dtype": "float32"}
        assert {name: data.attrs[name] for name in expected} == expected
        assert data.attrs["command"].startswith("hierattn simulate --width 8")
    assert run(*command)[0] == 2
    assert run(*command, "--force")[0] == 0


def test_compare_a_width_with_its_limit(run, monkeypatch):
    monkeypatch.setattr(limit, "TAILS", {"999": 1e-3})  # one of three ratios of quantiles, which are most of the work
    command = ("compare", "--width", 16, "--tokens", 2, "--head-dim", 16, "--networks", 2**12, "--seed", 3)
    code, out, err = run(*command, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert record == compare(Architecture(head_dim=16), 16, tokens=2, networks=2**12, seed=3)
    for name in ("kl", "total_variation", "ks_distance", "excess_kurtosis_finite", "tail_ratio_999", "head_dim_kl"):
        assert record[f"{name}_error"] > 0
    assert {"kl_floor", "excess_kurtosis_limit", "head_dim_kl_floor", "head_dim_excess_kurtosis_limit"} <= set(record)
    assert {"gaussian_kl", "gaussian_quantile_error_999", "gaussian_networks_needed"} <= set(record)
    title, *lines = run(*command)[1].splitlines()
    assert title == "width 16, clip inputs, 2 tokens, 1 heads: token 0"
    assert any(line.split()[:3] == ["kl", f"{record['kl']:.10g}", "+-"] for line in lines)


def test_every_option_reaches_the_comparison(run, monkeypatch, tmp_path):
    given = []

    def compare(layer, width, **more):
        more.pop("advance")(5)
        given.append({"heads": layer.heads, "score_function": layer.score_function, "width": width, **more})
        return {"kl": 0.0, "token": 3}

    monkeypatch.setattr(hierattn, "compare", compare, raising=False)
    plain = {"heads": 1, "score_function": "softmax", "width": 9, "tokens": 4, "activation": "clip", "seed": 0}
    assert run("compare", "--width", 9)[1].startswith("width 9, clip inputs, 4 tokens, 1 heads: token 3\n")
    assert given.pop() == plain
    options = (
        "--activation",
        "relu",
        "--token",
        1,
        "--seed",
        2,
        "--heads",
        3,
        "--networks",
        64,
        "--score-function",
        "identity",
    )
    assert run("compare", "--width", 9, *options)[0] == 0
    more = {"activation": "relu", "token": 1, "seed": 2, "heads": 3, "networks": 64, "score_function": "identity"}
    assert given.pop() == plain | more
    np.save(tmp_path / "K.npy", kernels.rbf(3, 1.0))
    _, out, _ = run("compare", "--width", 9, "--kernel", tmp_path / "K.npy")
    assert out.startswith(f"width 9, inputs of the kernel in {tmp_path}/K.npy, 3 tokens, 1 heads: token 3\n")
    np.testing.assert_array_equal(given[0].pop("kernel"), kernels.rbf(3, 1.0))
    assert {name for name in given[0] if name in plain} == set(plain) - {"tokens", "activation"}


def test_compare_observed_outputs_with_the_law(run, tmp_path):
    law = Law(Architecture(sigma_q=2.0), np.eye(2))
    y = np.asarray(law.sample(jax.random.key(0), 200, 2))
    np.savez(tmp_path / "y.npz", outputs=y, other=np.zeros(3))
    xarray.Dataset({"outputs": (("network", "token", "coordinate"), y)}).to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    np.save(tmp_path / "K.npy", np.eye(2))
    expected = compare_outputs(y, law, token=1, seed=4)
    options = ("--score-scale", 2, "--token", 1, "--seed", 4)
    for arguments in (("y.npz",), ("y.nc", "--tokens", 2), ("y.nc", "--kernel", tmp_path / "K.npy")):
        code, out, _ = run("compare", tmp_path / arguments[0], *arguments[1:], *options, "--json")
        assert (code, json.loads(out)) == (0, expected)
    code, out, _ = run("compare", tmp_path / "y.nc", *options)
    assert code == 0
    assert any(line.split() == ["tail", "ratio", "9999", "None"] for line in out.splitlines())
    assert "tail_ratio_9999 needs 10 outputs in the tail" in out


@pytest.mark.parametrize(
    ("outputs", "options", "words"),
    [
        (np.ones((30, 2)), (), "expected shape (network, token, coordinate), got (30, 2)"),
        (np.ones((30, 2, 3)), ("--tokens", 3), "outputs: expected shape (network, 3 tokens, coordinate), got (30, 2, 3)"),
        (np.ones((30, 2, 3)), (), "outputs: expected outputs that vary"),
        (np.full((30, 2, 3), np.nan), (), "180 NaN or infinite, the first at (0, 0, 0)"),
    ],
)
def test_outputs_that_cannot_be_compared(run, tmp_path, outputs, options, words):
    np.save(tmp_path / "y.npy", outputs)
    code, out, err = run("compare", tmp_path / "y.npy", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_table_and_a_progress_bar_on_a_terminal(run, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, out, err = run("sample", "--networks", 2, "--out", tmp_path / "x.nc")
    assert "│ networks" in out
    assert "networks" in err
    monkeypatch.setattr(hierattn, "compare", lambda *_, advance, **__: advance(2**22) or {"kl": 0.5}, raising=False)
    _, out, err = run("compare", "--width", 8)
    assert "│ kl │ 0.5 │" in out
    assert "networks" in err


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_help_of_finite_networks(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert all(f"--{option}" in out for option in ("width", "tokens", "heads", "head-dim", "activation", "networks", "seed"))


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


def test_version_and_short_help(run):
    assert run("--version") == (0, f"hierattn {hierattn.__version__}\n", "")
    assert run("-h") == run("--help")
    code, out, err = run("law", "-h")
    assert (code, out, err) == run("law", "--help")
    assert "--moments" in out


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_help_has_an_example_that_parses(run, name):
    example = EXAMPLES[name]
    words = " ".join(run(name, "--help")[1].split())
    assert f"Example: {example}" in words
    program, command, *arguments = example.split()
    assert (program, command) == ("hierattn", name)
    parsed = typer.main.get_command(app.app).commands[name].make_context(name, arguments)
    assert parsed.params


def test_as_a_module_and_completed_by_a_shell():
    told = subprocess.run([sys.executable, "-m", "hierattn", "--version"], check=True, capture_output=True, text=True)
    assert told.stdout == f"hierattn {hierattn.__version__}\n"
    typed = {"_HIERATTN_COMPLETE": "complete_bash", "COMP_WORDS": "hierattn di", "COMP_CWORD": "1"}
    program = [Path(sys.executable).parent / "hierattn"]
    told = subprocess.run(program, check=True, capture_output=True, text=True, env=os.environ | typed)
    assert told.stdout == "diagnose\n"
