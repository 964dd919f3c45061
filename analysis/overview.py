"""Write analysis/README.md from what is on record: figures, claims, benchmarks. Nothing in it is written by hand.

python analysis/overview.py
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NONE = "not on record"
HEAD = """# Analysis

Written by `python analysis/overview.py` from the scripts' own words and from the result files, which hold every number with its
command, seed and versions. All commands run in the checkout's environment (`make demo` makes it).
"""
FIGURES = """## Figures

`make figures` makes all of them at the paper's full sample counts, each as `.png`, `.pdf` and `.json`;
`python analysis/figures.py --quick` makes smaller ones in seconds. Seconds are those of one process, once compiled.
"""
CLAIMS = """## Claims, verified at full counts

`make verify` runs what is not on record for the present code and resumes after a kill. `python analysis/verify.py --stale` says
which records are of earlier code, and what has changed since. Minutes are those of a machine of two cores, often shared.
"""
BENCHMARKS = """## Benchmarks

`make benchmarks` runs all; each measures its ratios in one run. The loop is Python's, of 10^7 additions, on the same host.
"""


def first_words(path: Path) -> str:
    """The first sentence of a script's docstring, on one line."""
    paragraph = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.?])\s+(?=[A-Z])", paragraph)[0]


def read(path: Path) -> dict[str, Any] | None:
    """A result file, if there is one."""
    return json.loads(path.read_text()) if path.exists() else None


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def figures(here: Path) -> str:
    """Every script that draws with analysis/plotting.py."""
    rows = []
    for path in sorted(path for path in here.glob("*.py") if f'main("{path.stem}", compute' in path.read_text()):
        found, picture = read(here / "figures" / f"{path.stem}.json"), f"[{path.stem}](figures/{path.stem}.png)"
        command, seconds = f"`python analysis/{path.name}`", f"{found['seconds']:g} s" if found else ""
        rows.append((first_words(path), command, picture if found else NONE, seconds))
    return table(("what it shows", "command", "picture", "time"), rows)


def claims(here: Path) -> str:
    """Every file of claims/."""
    rows = []
    for path in sorted((here / "claims").glob("*.py")):
        found, result, minutes = read(here / "results" / f"{path.stem}.json"), NONE, ""
        if found:
            cases = found["cases"].values()
            passed = f"{sum(case['passed'] for case in cases)} of {len(cases)} cases"
            result, minutes = f"[{passed}](results/{path.stem}.json)", f"{sum(case['seconds'] for case in cases) / 60:.0f} min"
        rows.append((first_words(path), f"`python analysis/verify.py {path.stem}`", result, minutes))
    return table(("claim", "command", "passed", "time"), rows)


def benchmarks(here: Path) -> str:
    """Every file of benchmarks/ that measures something."""
    rows = []
    for path in sorted(path for path in (here / "benchmarks").glob("*.py") if path.stem != "timing"):
        found, ratios, loop = read(here / "results" / "benchmarks" / f"{path.stem}.json"), NONE, ""
        if found:
            told = ", ".join(f"{name} = {value:g}" for name, value in found["ratios"].items())
            ratios, loop = f"[{told}](results/benchmarks/{path.stem}.json)", f"{found['loop_seconds']:.2f} s"
        rows.append((first_words(path), f"`python analysis/benchmarks/{path.name}`", ratios, loop))
    return table(("question", "command", "ratios of times", "loop"), rows)


def overview(here: Path = HERE) -> str:
    """The whole text."""
    parts = (HEAD, FIGURES, figures(here), CLAIMS, claims(here), BENCHMARKS, benchmarks(here))
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "README.md").write_text(overview())
    print(HERE / "README.md")
