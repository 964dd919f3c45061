"""`hierattn capture --model`, and what diagnose and report say of small initialisers."""

import json

import pytest

import hierattn as ha


@pytest.mark.parametrize("model", ["gpt2", "bert", "llama"])
def test_captured_and_reported(run, tmp_path, model):
    out, page = tmp_path / f"{model}.npz", tmp_path / "report.html"
    size = ["--layers", 2, "--width", 32, "--heads", 4, "--tokens", 6, "--networks", 20]
    code, text, err = run("capture", "--model", model, *size, "--out", out)
    assert (code, err) == (0, "")
    assert "variance q origin        initialiser" in text
    found = ha.read(out)
    assert (found.networks, found.s, found.heads, found.layer.head_dim) == (20, 6, 4, 8)
    assert (found.layer.rotary is not None) == (model == "llama")
    assert found.mask == (None if model == "bert" else "causal")
    code, text, _ = run("report", out, "--networks", 12, "--out", page, "--json")
    record = json.loads(text)
    assert (code, record["consistent"], record["reasons"][0]["code"]) == (0, None, "low_power")
    assert record["reasons"][0]["message"].startswith("12 networks")
    assert "12 networks" in page.read_text()


def test_modules_by_name_and_number(run, tmp_path):
    size = ["--width", 32, "--tokens", 5, "--networks", 3, "--json"]
    record = json.loads(run("capture", "--model", "t5", *size, "--module", 5, "--out", tmp_path / "a.npz")[1])
    name = "decoder.block.1.layer.1.EncDecAttention"
    assert record["module"] == f"{name} (T5Attention)"
    again = json.loads(run("capture", "--model", "t5", *size, "--module", name, "--out", tmp_path / "b.npz")[1])
    assert again | {"out": record["out"]} == record
