"""`hierattn depth`: a Transformer's tokens layer by layer, from options or from a config."""

import json

import h5netcdf
import numpy as np
import pytest

from hierattn.numerics import rqmc

SMALL = ("--width", 8, "--heads", 2, "--layers", 2, "--tokens", 3, "--networks", 20, "--mlp", 12)


POST = ("--norm", "layer", "--placement", "post")


@pytest.mark.parametrize(("options", "last"), [(POST, []), pytest.param((), ["final"], marks=pytest.mark.slow)])
def test_a_line_a_layer(run, options, last):
    code, out, err = run("depth", *SMALL, *options)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "Stack(width=8, blocks=2, tokens=3), 20 networks"
    assert [line.split()[0] for line in lines[1:]] == ["layer", "embedding", "1", "2", *last]


def test_a_file_with_named_dims_and_json(run, tmp_path):
    path = tmp_path / "depth.nc"
    code, out, _ = run("depth", *SMALL, *POST, "--out", path, "--json")
    told = json.loads(out)
    assert code == 0
    assert len(told["cosine"]) == len(told["cosine_error"]) == 3
    with h5netcdf.File(path) as file:
        assert file["gram"].dimensions == ("network", "layer", "token", "token_")
        gram = file["gram"][:]
        assert gram.shape == (20, 3, 3, 3)
        assert np.isclose(gram[:, :, 2, 2].mean(axis=0)[0], told["norm"][0])
        assert "seed" in file.attrs
    assert run("depth", *SMALL, "--out", path)[0] == 2  # it is there already


def test_a_config(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2}))
    out = run("depth", "--config", path, "--token-ids", "5,9,5,3", "--networks", 4)[1]
    assert "blocks=1, tokens=4" in out
    assert out.splitlines()[-1].split()[0] == "final"
    code, out, err = run("depth", "--config", path)
    assert (code, out) == (2, "")
    assert "token_ids: expected token ids beside a config" in err
    assert run("depth", "--token-ids", "5,x")[0] == 2
    assert run("depth", "--networks", 1)[0] == 2


def test_a_picture_and_a_page(run, tmp_path, monkeypatch):
    monkeypatch.setattr(rqmc, "BUDGET", 2**14)
    picture, page = tmp_path / "depth.png", tmp_path / "depth.html"
    code, out, err = run("depth", *SMALL, "--figure", picture, "--report", page)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 6  # other theories only where they are asked for
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "infinitely many heads" in page.read_text()
    assert "hierattn depth --width 8" in page.read_text()
    told = json.loads(run("depth", *SMALL, "--baselines", "--json")[1])
    assert len(told["baselines"]["infinitely many heads"]["cosine"]) == 4
    assert run("depth", *SMALL, "--figure", picture)[0] == 2  # it is there already
    assert "figure: expected a name that ends in .png, .pdf, .svg" in run("depth", *SMALL, "--figure", tmp_path / "x.gif")[2]
