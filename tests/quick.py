"""The tests that a change touches, nearest first, in at most two minutes: `make quick` runs this.

Changed are files that git has not committed, or, if there are none, those of the last commit. A test file is run if its code
reaches a definition of a changed module (tests/definitions.py). Changed tests come first, then those named after a changed
module, then those that reach one in the fewest steps, those of its own folder before others. A file that is not Python belongs
to modules that name it or its folder, a page of documentation to the README's test. After 100 s nothing new is begun, and one
line says how many tests are left to `make test`. What is compiled is kept for the next time.

As a pytest plugin (`-p tests.quick`, in every worker) this file keeps to the budget.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.definitions import Graph, graph
from tests.graph import ROOT

BUDGET, GRACE = 100.0, 10.0  # seconds: to begin tests, and to end those that have begun
DEADLINE = "HIERATTN_QUICK_DEADLINE"
REASON = "out of time"
DOCUMENTATION = (".md", ".cff", "LICENSE")
README_TEST = "tests.test_readme"
READS_ALL = "tests.graph:files"  # tests that reach this look at every file
LAST = 1000


def changed_files(root: Path = ROOT) -> list[str]:
    """Files that differ from the last commit, or that it changed."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()

    found = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return sorted(set(found)) or sorted(git("log", "-1", "-m", "--first-parent", "--name-only", "--format="))


def changed_modules(paths: Iterable[str], found: Graph, root: Path = ROOT) -> set[str]:
    """Modules whose file has changed, or one that they name."""
    modules = {path.relative_to(root).as_posix(): module for module, path in found.files.items()}
    result = {modules[path] for path in paths if path in modules}
    for path in (Path(path) for path in paths if path not in modules):
        if path.suffix in DOCUMENTATION or path.name in DOCUMENTATION:
            result |= {README_TEST} | {module for module in _naming(path.parent.name, found) if ".test_" in module}
        elif path.suffix != ".py":
            result |= _naming(path.name, found) | _naming(path.parent.name, found)
    return result


def _naming(name: str, found: Graph) -> set[str]:
    """Modules with a string that is a name."""
    return {module for module, file in found.files.items() if name and f'"{name}"' in file.read_text()}


def selection(paths: Iterable[str], found: Graph, root: Path = ROOT) -> dict[str, int]:
    """Test files -> steps to the nearest change (0: changed itself), in the order in which they are run."""
    modules = changed_modules(paths, found, root)
    code = {module for module in modules if not module.startswith("tests.")}
    named_after = {f"tests.{folder}.test_{name}" for folder, name in (_place(module) for module in code)}
    folders = {f"tests.{_place(module)[0]}" for module in code}
    conftests = {module.removesuffix("conftest") for module in modules if module.endswith(".conftest")}
    ranks = {}
    for module, path in found.files.items():
        if not path.name.startswith("test_"):
            continue
        reached = found.reached(module)
        steps = [distance + 1 for key, distance in reached.items() if key.partition(":")[0] in modules]
        if module in modules:
            steps = [0]
        elif module in named_after:
            steps = [1]
        elif (code and READS_ALL in reached) or any(module.startswith(folder) for folder in conftests):
            steps.append(LAST)
        elif any(name.startswith("analysis.") for name in code) and '"analysis"' in path.read_text():
            steps.append(LAST - 1)
        if steps:
            elsewhere = module.rpartition(".")[0] not in folders
            ranks[path.relative_to(root).as_posix()] = (min(steps), elsewhere, len(reached))
    return {path: ranks[path][0] for path in sorted(ranks, key=lambda path: (*ranks[path], path))}


def _place(module: str) -> tuple[str, str]:
    """Folder beneath the package, and name: `law`, `marginal` of hierattn.law.marginal."""
    folder, _, name = module.partition(".")[2].rpartition(".")
    return folder, name


def ignored(path: Path) -> bool:
    """Is a test file not collected here? Files that are named to pytest always are."""
    conftest = path.parent / "conftest.py"
    if not (ROOT / conftest).exists() or "collect_ignore" not in (ROOT / conftest).read_text():
        return False
    return path.name in import_module(".".join(conftest.with_suffix("").parts)).collect_ignore


def main() -> None:
    """Choose, and run."""
    start = time.time()
    paths = changed_files()
    chosen = [path for path in selection(paths, graph()) if not ignored(Path(path))]
    shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    print(f"{len(chosen)} test files reach what has changed ({shown or 'nothing'})", flush=True)
    if not chosen:
        return
    in_order = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"] if len(chosen) > 1 else ["-n", "0"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick", *in_order, *chosen]
    sys.exit(subprocess.run(command, cwd=ROOT, env=os.environ | {DEADLINE: str(start + BUDGET)}).returncode)


def _left() -> float:
    """Seconds until nothing new is begun."""
    return float(os.environ.get(DEADLINE, "inf")) - time.time()


def _stop(*_: Any) -> None:
    pytest.skip(REASON)


def _within(seconds: float) -> Generator[None, None, None]:
    """Leave what is being done after so many seconds."""
    if seconds == float("inf"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True, trylast=True)  # inside of what other plugins begin and end
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Begin no test after the deadline, and give up its preparation after the grace."""
    if _left() < 0:
        pytest.skip(REASON)
    return (yield from _within(_left() + GRACE))


@pytest.hookimpl(wrapper=True, trylast=True)  # inside of what other plugins begin and end
def pytest_runtest_call() -> Generator[None, None, None]:
    """Give up a test after the grace."""
    return (yield from _within(_left() + GRACE))


def pytest_unconfigure(config: pytest.Config) -> None:
    """After all else, how many tests were not run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    count = sum(REASON in str(report.longrepr) for report in skipped)
    if count:
        print(f"{count} tests were not run in {BUDGET:.0f} s: `make test` runs all")


if __name__ == "__main__":
    main()
