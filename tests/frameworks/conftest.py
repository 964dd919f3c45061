"""PyTorch has an environment of its own (`make test-frameworks`): its tests are collected only there."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_torch_layers.py", "test_transformers_models.py", "test_torch_commands.py"]
