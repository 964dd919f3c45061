"""What the README and the pages of docs/ show is what the package prints."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
MOST_LINES = 160


def blocks(text, language):
    """Fenced blocks of one language, in order."""
    return [
        body for name, body in re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE) if name == language
    ]


def test_the_examples_run_and_print_what_they_say(tmp_path, monkeypatch, capsys):
    """One program of all of them, shortened; the twelve lines of the first print what is shown."""
    pages = [TEXT, *(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))]
    code = "".join(block for page in pages for block in blocks(page, "python"))
    assert len([line for line in blocks(TEXT, "python")[0].splitlines() if line]) == 12
    code = code.replace("=400, num_samples=400", "=2, num_samples=2, progress_bar=False").replace("50]", "5]")
    code = code.replace("networks=500)", "networks=20)").replace("ha.fit(obs)", "ha.fit(obs, log_likelihood=False)")
    code = code.replace("size=(8, 256)", "size=(2, 32)").replace("in_features=256", "in_features=32")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "the examples", "exec"), {"__name__": "__main__"})
    shown = next(block for block in blocks(TEXT, "") if block.startswith("(1000, 4, 16)"))
    assert capsys.readouterr().out.startswith(shown)


def test_the_command_prints_what_it_says(run):
    session = next(block for block in blocks(TEXT, "") if block.startswith("$ hierattn law"))
    command, *shown = session.split("\n\n")[0].splitlines()
    code, out, _ = run(*command.split()[2:])
    assert code == 0
    without_errors = [re.sub(r" \+- .*", "", line) for line in shown]
    assert [re.sub(r" \+- .*", "", line) for line in out.splitlines()] == without_errors


def test_the_first_screen_has_the_three_commands_and_the_whole_is_short():
    for command in ("pip install .", "make demo", "make test"):
        assert command in TEXT[:1500]
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_the_map_is_what_the_folders_say_of_themselves():
    """One row for each folder with code, in the words of its docstring, and rows for the others."""
    rows = dict(re.findall(r"^\| `(\S+)/` \| (.*) \|$", TEXT, flags=re.MULTILINE))
    packages = [path.parent for path in (ROOT / "hierattn").glob("*/__init__.py")] + [ROOT / "models"]
    said = {str(folder.relative_to(ROOT)): first_line(folder / "__init__.py") for folder in packages}
    assert {folder: rows.get(folder) for folder in said} == said
    assert set(rows) == {*said, "analysis", "tests", "docs"}


def first_line(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]
