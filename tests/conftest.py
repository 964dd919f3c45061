"""Array shapes in signatures are checked while tests run, and only then; what one process compiles serves all of a session."""

import atexit
import os
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
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")  # halves compile times, which are most of the suite
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers and the programs that tests start inherit it
    compiled = tempfile.mkdtemp(prefix="hierattn-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": compiled, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

CHECKED = ("architecture", "activations", "kernels", "wishart", "sampling", "law", "joint_moments", "moments", "distributions")
CHECKED += ("inputs", "network", "one_token", "collapsed", "theorem", "mixtures", "token_law")
install_import_hook([f"hierattn.{name}" for name in CHECKED], f"{shapes.__name__}.check_arrays")


@pytest.fixture
def run(monkeypatch, capsys):
    """A command in this process: exit code, stdout and stderr."""
    from hierattn import cli

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["hierattn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.run()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run
