"""The command that captures, on a Flax model of a user's own file."""

import json

import numpy as np
import pytest

import hierattn as ha

SCRIPT = """
import numpy as np
from flax import nnx

X = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
number = 3

def build_model(seed):
    init = nnx.initializers.normal(0.5)
    layer = nnx.MultiHeadAttention(num_heads=2, in_features=16, decode=False, kernel_init=init, rngs=nnx.Rngs(seed))
    return layer, {"inputs_q": X, "mask": np.tri(3, dtype=bool)[None]}
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "model.py"
    path.write_text(SCRIPT)
    return path


def test_captured_reported_diagnosed(run, script, tmp_path):
    out = tmp_path / "captured.npz"
    command = ["capture", f"{script}:build_model", "--networks", 30, "--coordinates", 8, "--out", out]
    code, text, err = run(*command)
    assert (code, err) == (0, "")
    assert text.startswith(f"the model itself (MultiHeadAttention) -> {out}\n")
    assert "score scale" in text
    found = ha.read(out)
    assert (found.networks, found.heads, found.mask, found.layer.head_dim) == (30, 2, "causal", 8)
    assert found.outputs.shape == (30, 3, 8)
    told = json.loads(str(np.load(out)["provenance"]))
    assert (told["seed"], told["variance_q_origin"], told["version_hierattn"]) == (0, "measured", ha.__version__)
    code, _, err = run(*command)
    assert code == 2
    assert "expected a new file" in err
    record = json.loads(run(*command, "--force", "--json")[1])
    first = out.read_bytes()
    assert json.loads(run(*command, "--force", "--json")[1]) == record
    assert out.read_bytes() == first
    assert (record["head_dim"], record["mask"], record["reasons"]) == (8, "causal", [])
    code, text, _ = run("report", out, "--out", tmp_path / "report.html", "--json")
    record = json.loads(text)
    assert (code, record["consistent"] is not False, record["scales"], record["head_dim"]) == (0, True, "given", 8)
    assert "given, not estimated" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--model: expected either --model or SCRIPT.py:FUNCTION, got neither"),
        (["{script}:build_model", "--model", "gpt2"], "got both"),
        (["{script}"], "SCRIPT: expected SCRIPT.py:FUNCTION"),
        (["{script}:nothing"], "expected a function `nothing`, got np, nnx, X, number, build_model"),
        (["{script}:number"], "expected a function `number`"),
        (["none.py:build"], "none.py: expected a .py file with a function `build`, got none"),
        (["{script}:build_model", "--module", "blocks.0"], "module: expected one of the model itself (MultiHeadAttention)"),
        (["{script}:build_model", "--width", 32], "--width: expected nothing with a function, which knows it, got 32"),
        (["{script}:build_model", "--out", "x.nc"], "--out: expected a file ending in .npz, got x.nc"),
    ],
)
def test_what_cannot_be_captured(run, script, tmp_path, arguments, words):
    given = [str(x).format(script=script) for x in arguments]
    out = [] if "--out" in given else ["--out", tmp_path / "y.npz"]
    code, _, err = run("capture", *given, *out)
    assert code == 2
    assert words in err
    assert not list(tmp_path.iterdir())


def test_help_is_there(run):
    assert run("capture", "--help")[0] == 0
