"""Array shapes in signatures are checked while tests run, and only then; what is compiled once is kept,
in `hierattn/compiled` of the user's caches, where every checkout and every later session finds it.

Of long lists of variants some run every time, and the others, marked slow, by `make verify`.
"""

import atexit
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

import jaxtyping
import pytest
from threadpoolctl import threadpool_limits

from tests import shapes

ROOT = Path(__file__).parent.parent
LARGEST = 2**29  # bytes of compiled code that are kept


def kept() -> Path:
    """Where compiled code is kept: among the user's caches, or in the checkout where these cannot be written."""
    shared = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "hierattn", "compiled")
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ROOT / ".compiled"
    return shared if os.access(shared, os.W_OK) else ROOT / ".compiled"


def prune(folder: Path) -> None:
    """Leave half of what was compiled, the latest, where there is too much of it; another session may do the same."""
    entries = []
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            entries.append((path.stat().st_mtime, path.stat().st_size, path))
    if sum(size for _, size, _ in entries) > LARGEST:
        for _, _, path in sorted(entries)[: len(entries) // 2]:
            path.unlink(missing_ok=True)


gc.set_threshold(100_000, 20, 100)
gc.disable()  # until all is imported
worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker and hasattr(os, "sched_setaffinity"):  # a core each: two programs whose threads share all cores wait for each other
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
    threadpool_limits(1, "blas")  # whose threads wait busily
FLAGS = (  # halves compile times; a program in one piece is also loaded sooner than one that many threads compiled
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", FLAGS)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers, programs that tests start, and later sessions share it
    compiled = kept()
    prune(compiled)
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(compiled), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ |= {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**34)}  # of workers: memory is used again
os.environ.setdefault("PYTHONHASHSEED", "0")  # of workers: NumPyro orders what it compiles by hashes of names

sys.dont_write_bytecode = False  # else every program that tests start compiles all files of ours again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

jaxtyping.jaxtyped = shapes.checked  # what the hook decorates with
jaxtyping.install_import_hook("hierattn", f"{shapes.__name__}.check_arrays")


def pytest_collection_finish():
    """What is imported stays: rubbish is not looked for there, and less often. Nor does a worker tidy up at its very end."""
    gc.freeze()
    gc.enable()
    if worker:
        atexit.register(os._exit, 0)  # all was reported by then; to free every compiled program by itself takes seconds


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
