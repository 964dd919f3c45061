"""What is understood of outputs, as a record and by `hierattn inspect`; every bad file on the command line."""

import json

import numpy as np
import pytest

from hierattn import Observations
from hierattn.base import provenance
from hierattn.observed import inspection
from hierattn.observed.inspection import describe, duplicates
from tests.base.files.bad_files import BAD, bad_files

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(7, 3, 5))
X = RNG.normal(size=(7, 3, 4)).astype(np.float32)


def test_duplicated_tokens():
    y = Y.copy()
    y[:, 2] = y[:, 0]
    assert describe(Observations(y))["duplicated_tokens"] == [[0, 2]]
    assert describe(Observations(Y))["duplicated_tokens"] == []
    noise = np.concatenate([y, y[:, :1] * (1 + 1e-4 * RNG.normal(size=(7, 1, 5)))], axis=1)
    assert describe(Observations(noise))["duplicated_tokens"] == [[0, 2]]
    assert duplicates(np.ones((3, 3))) == [[0, 1, 2]]
    assert duplicates(np.kron(np.eye(2), np.ones((2, 2)))) == [[0, 1], [2, 3]]


def test_what_was_understood(monkeypatch):
    y = Y.copy()
    y[:, 1] = 2.0
    record = describe(Observations(y, kernel=np.diag([4.0, 1, 0]), heads=2))
    expected = {
        "networks": 7,
        "tokens": 3,
        "coordinates": 5,
        "constant_tokens": [1],
        "kernel": "given",
        "kernels": 1,
        "kernel_tokens": 3,
        "kernel_eigenvalues": [4.0, 1.0, 0.0],
        "kernel_rank": 2,
        "observed_tokens": [0, 1, 2],
        "heads": 2,
        "mask": "none",
        "outputs_complete": True,
        "sha256": provenance.digest(y),
    }
    assert {name: record[name] for name in expected} == expected
    assert record["token_scales"][1] == pytest.approx(2)
    assert [reason["code"] for reason in record["reasons"]] == ["constant_tokens"]
    record = describe(Observations(Y[:1], mask=np.tri(3, dtype=bool)))
    assert (record["kernel"], record["kernel_eigenvalues"], record["kernels"], record["mask"]) == ("inferred", None, 0, "given")
    assert [reason["code"] for reason in record["reasons"]] == ["kernel_inferred", "one_network"]
    record = describe(Observations(Y, inputs=X))
    np.testing.assert_allclose(
        record["kernel_eigenvalues"][::-1], np.linalg.eigvalsh(np.einsum("mia,mja->ij", *2 * [X.astype(float)]) / 28)
    )
    assert (record["kernels"], record["kernel_rank"], record["reasons"][0]["code"]) == (7, 3, "kernel_each")
    assert describe(Observations(Y, kernel=np.zeros((3, 3))))["kernel_rank"] == 0
    some = np.concatenate([np.zeros((4, 3, 3)), np.ones((2, 3, 3)), np.diag([1.0, 1, 0])[None]])
    for size in (1, 2**20):
        monkeypatch.setattr(inspection, "BLOCK", size)
        assert describe(Observations(Y, kernel=some))["kernel_rank"] == 2


def test_inspect_shows_what_was_understood(run, tmp_path):
    y = np.random.default_rng(0).normal(size=(30, 3, 4))
    X = np.random.default_rng(1).normal(size=(30, 3, 5))
    np.savez(tmp_path / "y.npz", outputs=y, heads=2)
    np.save(tmp_path / "K.npy", np.eye(3))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "mask.npy", np.tri(3, dtype=bool))
    for options, more in (
        ((), {}),
        (("--kernel", "identity"), {"kernel": "identity"}),
        (("--kernel", tmp_path / "K.npy", "--heads", 2), {"kernel": np.eye(3)}),
        (("--inputs", tmp_path / "X.npy"), {"inputs": X}),
        (("--kernel", "identity:5", "--tokens", "4, 0,2", "--mask", "causal"), {"kernel": np.eye(5), "tokens": [4, 0, 2]}),
        (("--mask", tmp_path / "mask.npy", "--networks", 20), {"mask": np.tri(3, dtype=bool), "networks": 20}),
    ):
        code, out, err = run("inspect", tmp_path / "y.npz", *options, "--json")
        more = more | ({"mask": "causal"} if "causal" in options else {})
        expected = describe(Observations(y, heads=2, **more)) | {"source": "y.npz"}
        origin = {"kernel": "identity"} if "identity:5" in options else {}
        assert (code, err, json.loads(out)) == (0, "", expected | origin)
    code, out, _ = run("inspect", tmp_path / "y.npz", "--kernel", "identity")
    assert code == 0
    assert out.splitlines()[0] == "Observations(networks=30, tokens=3, coordinates=4, kernel=identity, source='y.npz')"
    assert any(line.split() == ["kernel", "eigenvalues", "1,", "1,", "1"] for line in out.splitlines())
    assert any(line.split() == ["duplicated", "tokens", "none"] for line in out.splitlines())
    assert "K is to be inferred" in run("inspect", tmp_path / "y.npz")[1]


def test_long_lists_are_cut_in_text(run, tmp_path):
    np.save(tmp_path / "y.npy", np.random.default_rng(0).normal(size=(3, 12, 2)))
    line = next(line for line in run("inspect", tmp_path / "y.npy")[1].splitlines() if line.startswith("observed tokens"))
    assert line.endswith("0, 1, 2, 3, 4, 5, 6, 7, ...")


def test_every_bad_file_is_one_line_and_an_exit_code(run, tmp_path):
    bad_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for name, (kind, words) in BAD.items():
        code, out, err = run("inspect", tmp_path / name)
        assert (code, out, err.count("\n")) == (kind.exit_code, "", 1), name
        assert words in err
        assert name in err
        assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("outputs", "options", "words"),
    [
        (np.ones((30, 2)), (), "outputs in {file}: expected shape (network, token, coordinate), got (30, 2)"),
        (np.ones((30, 2, 3)), (), "outputs in {file}: expected outputs that vary, got one value, 1"),
        (np.ones((30, 0, 3)), (), "outputs in {file}: expected at least one network, token and coordinate"),
        (np.full((30, 2, 3), np.nan), (), "outputs in {file}: expected finite numbers, got 180 NaN and 0 infinite"),
        (np.ones((30, 2, 3)) * 1j, (), "outputs in {file}: expected real numbers, got complex128"),
        (np.ones((30, 2, 3)), ("--kernel", "identity:3"), "axes swapped? its last axis has 3"),
        (np.ones((30, 2, 3)), ("--kernel", "identity:4"), "outputs in {file}: expected shape (network, 4 tokens"),
        (np.ones((30, 2, 3)), ("--tokens", "0;1"), "--tokens: expected whole numbers with commas between them, got '0;1'"),
        (np.ones((30, 2, 3)), ("--heads", 0), "heads: expected a positive whole number, got 0"),
        (np.ones((30, 2, 3)), ("--kernl", "identity"), "No such option: --kernl (Possible options: --help, --kernel"),
    ],
)
def test_outputs_that_cannot_be_understood(run, tmp_path, outputs, options, words):
    np.save(tmp_path / "y.npy", outputs)
    code, out, err = run("inspect", tmp_path / "y.npy", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words.format(file=tmp_path / "y.npy") in err
