"""Array shapes in signatures are checked while tests run, and only then; what one process compiles serves all of a session.

Of long lists of variants some run every time, and the others, marked slow, by `make verify`.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile

import pytest
from jaxtyping import install_import_hook

from tests import shapes

worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker and hasattr(os, "sched_setaffinity"):  # a core each: two programs whose threads share all cores wait for each other
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
FLAGS = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", FLAGS)  # halves compile times, which are most of the suite
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers and the programs that tests start inherit it
    compiled = tempfile.mkdtemp(prefix="hierattn-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": compiled, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

CHECKED = ("numerics.wishart", "numerics.mixtures", "layer.architecture", "layer.activations", "layer.kernels", "law.sampling")
CHECKED += ("law.law", "law.joint_moments", "law.moments", "law.one_token", "law.token_law", "law.distributions")
CHECKED += ("finite.inputs", "finite.network", "finite.collapsed", "finite.theorem")
install_import_hook([f"hierattn.{name}" for name in CHECKED], f"{shapes.__name__}.check_arrays")


@pytest.fixture
def run(monkeypatch, capsys):
    """A command in this process: exit code, stdout and stderr."""
    from hierattn.command_line import app

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["hierattn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            app.run()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


SLOW = (
    r"test_models.py::test_conditioning_and_inspection\[(?!limit_law|student_t)",
    r"test_checkpoints.py::test_a_fit_killed_by_sigkill_goes_on_as_if_it_had_not_been\[nuts",
    r"base/files/test_reading.py::test_large_files_cost_little_memory",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if any(re.search(pattern, item.nodeid) for pattern in SLOW):
            item.add_marker(pytest.mark.slow)
