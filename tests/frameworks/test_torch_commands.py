"""`hierattn capture --model`, and what diagnose and report say of small initialisers."""

import json

import pytest

import hierattn as ha


@pytest.mark.parametrize("model", ["gpt2", "bert", "llama"])
def test_captured_and_reported(run, tmp_path, model):
    out, page = tmp_path / f"{model}.npz", tmp_path / "report.html"
    size = ["--layers", 2, "--width", 32, "--heads", 4, "--tokens", 6, "--networks", 100]
    code, text, err = run("capture", "--model", model, *size, "--out", out)
    assert (code, err) == (0, "")
    assert "variance q origin        initialiser" in text
    found = ha.read(out)
    assert (found.networks, found.s, found.heads, found.layer.head_dim) == (100, 6, 4, 8)
    assert (found.layer.rotary is not None) == (model == "llama")
    assert found.mask == (None if model == "bert" else "causal")
    code, text, _ = run("report", out, "--out", page)
    assert code == 0
    assert text.splitlines()[0] in ("CONSISTENT", "UNDECIDED")
    record = json.loads(run("diagnose", out, "--networks", 12, "--json")[1])
    assert (record["consistent"], record["reasons"][0]["code"]) == (None, "low_power")
    assert record["reasons"][0]["message"].startswith("12 networks")


def test_modules_by_name_and_number(run, tmp_path):
    size = ["--width", 32, "--tokens", 5, "--networks", 3, "--json"]
    record = json.loads(run("capture", "--model", "t5", *size, "--module", 5, "--out", tmp_path / "a.npz")[1])
    name = "decoder.block.1.layer.1.EncDecAttention"
    assert record["module"] == f"{name} (T5Attention)"
    again = json.loads(run("capture", "--model", "t5", *size, "--module", name, "--out", tmp_path / "b.npz")[1])
    assert again | {"out": record["out"]} == record
