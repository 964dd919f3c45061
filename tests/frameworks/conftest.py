"""PyTorch has an environment of its own (`make test-frameworks`): its tests are collected only there."""

from importlib.util import find_spec

NEEDS = {
    "test_tutorial.py": ("torch", "transformers"),
    "test_torch_layers.py": ("torch",),
    "test_transformers_models.py": ("torch", "transformers"),
    "test_families.py": ("torch", "transformers"),
    "test_torch_sdpa.py": ("torch",),
    "test_torch_norms.py": ("torch",),
    "test_torch_commands.py": ("torch", "transformers"),
}
collect_ignore = [name for name, packages in NEEDS.items() if not all(map(find_spec, packages))]
