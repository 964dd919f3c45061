"""Every framework has all functions of the protocol, with its arguments."""

import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from hierattn.frameworks import protocol
from hierattn.frameworks.protocol import FRAMEWORKS, Framework

FUNCTIONS = {name: function for name, function in vars(Framework).items() if not name.startswith("_")}


def test_the_protocol_is_what_capture_calls():
    text = "".join((Path(protocol.__file__).parent / name).read_text() for name in ("capture.py", "networks.py"))
    assert sorted(FUNCTIONS) == ["built", "check_mode", "fresh", "hold", "layers", "look", "modules", "read"]
    assert all(f"framework.{name}(" in text or f"known.{name}(" in text for name in FUNCTIONS)


@pytest.mark.parametrize(("base", "file"), FRAMEWORKS.items(), ids=FRAMEWORKS.values())
def test_frameworks_keep_it(base, file):
    if find_spec(base.partition(".")[0]) is None:
        pytest.skip(f"{base} is not installed")
    framework = import_module(f"hierattn.frameworks.{file}")
    for name, function in FUNCTIONS.items():
        expected = [x for x in inspect.signature(function).parameters if x != "self"]
        assert list(inspect.signature(getattr(framework, name)).parameters) == expected, name
    assert any(owner.__module__ == base for owner in _model(base).__mro__)


def _model(base):
    """A class of models."""
    if base.startswith("torch"):
        from torch.nn import Linear

        return Linear
    from flax.nnx import Linear

    return Linear
