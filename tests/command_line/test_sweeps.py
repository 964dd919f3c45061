"""`hierattn sweep`: a plan to a file, a file to a picture, and what a user sees of failures."""

import json

import pytest

from hierattn import read_sweep

PLAN = """
function = "law"
[over]
heads = [1, 2, 4]
score_scale = [0.5, 1.0]
[settings]
moments = true
tokens = 3
"""
MINE = """
def f(a):
    if a == 2:
        raise ValueError("two is too many")
    return {"x": a}
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_a_plan_a_file_a_picture(run, plan, tmp_path):
    out, picture = tmp_path / "x.zarr", tmp_path / "x.png"
    code, text, err = run("sweep", plan, "--out", out, "--figure", picture, "--quantity", "excess_kurtosis")
    assert (code, err) == (0, "")
    assert text.splitlines()[0] == f"{plan}: 3 heads x 2 score_scale"
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("sweep", out, "--json")[1])  # from the file alone
    assert (told["points"], told["done"], told["failed"]) == (6, 6, 0)
    found = read_sweep(out)["excess_kurtosis"]
    assert told["excess_kurtosis"] == [found.min(), found.max()]
    again = tmp_path / "y.svg"
    assert run("sweep", out, "--figure", again, "--quantity", "variance", "--at", "heads=4")[0] == 0
    assert "<svg" in again.read_text()
    assert run("sweep", plan, "--out", out, "--resume")[0] == 0
    code, _, err = run("sweep", plan, "--out", out)
    assert (code, "expected a new sweep, got one that exists; use --resume, --force" in err) == (2, True)


def test_a_failed_point_is_said_and_is_the_exit_code(run, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "plan.toml").write_text('function = "mine.py:f"\n[over]\na = [1, 2, 3]\n')
    code, text, err = run("sweep", tmp_path / "plan.toml", "--out", tmp_path / "x.zarr")
    assert code == 1
    assert err == "hierattn: a 2: ValueError: two is too many\n"
    assert text.splitlines()[-1] == "a point failed: ValueError: two is too many"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "out: expected a file for the results, got None; as in --out plan.zarr"),
        (("--out", "x.nc"), "out: expected a name that ends in .zarr, got x.nc"),
        (("--out", "x.zarr", "--figure", "x.gif"), "figure: expected a name that ends in .png, .pdf, .svg, got x.gif"),
    ],
)
def test_one_line_for_what_is_wrong(run, plan, options, words):
    code, text, err = run("sweep", plan, *options)
    assert (code, text, err) == (2, "", f"hierattn: {words}\n")


def test_places_of_pictures(run, plan, tmp_path):
    out = tmp_path / "x.zarr"
    assert run("sweep", plan, "--out", out)[0] == 0
    for more, words in {
        ("--at", "heads"): "at: expected NAME=VALUE, got 'heads'; as in --at heads=4",
        ("--at", "heads=3"): "at heads: expected one of 1, 2, 4, got 3",
        ("--at", "layer=1"): "at: expected dims of variance: heads, score_scale, got layer",
        ("--quantity", "kurtosis"): "quantity: expected one of variance, excess_kurtosis, ",
    }.items():
        code, _, err = run("sweep", out, "--figure", tmp_path / "x.png", *more)
        assert (code, words in err) == (2, True), err
        assert not (tmp_path / "x.png").exists()
