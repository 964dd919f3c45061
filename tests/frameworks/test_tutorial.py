"""The tutorial runs, in its quick form, for every framework that is there."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "analysis" / "tutorial_frameworks.py"


def test_tutorial(tmp_path):
    command = [sys.executable, SCRIPT, "--quick", "--out", tmp_path]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = ["a_Flax_layer", *(["a_PyTorch_layer_causal", "GPT-2"] if find_spec("torch") else [])]
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(names)
    assert "a Flax layer: the model itself (MultiHeadAttention), 60 networks, 6 tokens" in out
    assert "NOT CONSISTENT" not in out
    assert ("GPT-2: UNDECIDED" in out) == bool(find_spec("torch"))
