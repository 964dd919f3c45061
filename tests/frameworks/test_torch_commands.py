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


def test_norms_caps_and_windows_are_told(run, tmp_path):
    """Numbers of what the layer has, nothing of what it has not; and fresh weights of the size that was asked for."""
    size = ["--width", 32, "--tokens", 6, "--networks", 3, "--initializer-range", 0.2, "--key-value-heads", 2, "--json"]
    record = json.loads(run("capture", "--model", "gemma2", *size, "--out", tmp_path / "a.npz")[1])
    assert (record["cap"], record["window"], record["mask"], record["key_value_heads"]) == (50.0, 3, "causal", 2)
    assert record["variance_q"] == pytest.approx(0.04)
    assert not {"qk_norm", "qk_eps", "sink", "sink_scale", "chunk"} & set(record)
    record = json.loads(run("capture", "--model", "gpt_oss", *size, "--out", tmp_path / "b.npz")[1])
    assert (record["sink"], record["sink_scale"]) == (0.0, pytest.approx(0.2))
    found = ha.read(tmp_path / "b.npz").layer
    assert (found.sink, found.sink_scale, found.window) == (0.0, pytest.approx(0.2), 3)


def test_modules_by_name_and_number(run, tmp_path):
    size = ["--width", 32, "--tokens", 5, "--networks", 3, "--json"]
    record = json.loads(run("capture", "--model", "t5", *size, "--module", 5, "--out", tmp_path / "a.npz")[1])
    name = "decoder.block.1.layer.1.EncDecAttention"
    assert record["module"] == f"{name} (T5Attention)"
    again = json.loads(run("capture", "--model", "t5", *size, "--module", name, "--out", tmp_path / "b.npz")[1])
    assert again | {"out": record["out"]} == record
