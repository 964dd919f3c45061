"""What the README shows is what the package prints."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def blocks(language):
    """Fenced blocks of one language, in order."""
    return [
        body for name, body in re.findall(r"^```(\w*)\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE) if name == language
    ]


def run(code, folder):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=folder).stdout


def test_the_example_prints_what_it_says(tmp_path):
    example = blocks("python")[0]
    assert len([line for line in example.splitlines() if line]) == 12
    assert run(example, tmp_path) in blocks("")


def test_the_command_prints_what_it_says(tmp_path):
    session = next(block for block in blocks("") if block.startswith("$ hierattn law"))
    command, *shown = session.split("\n\n")[0].splitlines()
    program = Path(sys.executable).parent / "hierattn"
    out = subprocess.run([program, *command.split()[2:]], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    without_errors = [re.sub(r" \+- .*", "", line) for line in shown]
    assert [re.sub(r" \+- .*", "", line) for line in out.splitlines()] == without_errors


def test_the_models_example_runs(tmp_path):
    code = (
        "".join(blocks("python")).replace("=400, num_samples=400", "=2, num_samples=2, progress_bar=False").replace("50]", "5]")
    )
    assert "excess kurtosis" in run(code, tmp_path)


def test_first_screen_has_the_two_commands():
    assert "make demo" in TEXT[:1500]
    assert "make test" in TEXT[:1500]


def test_files_it_names_are_there():
    for name in re.findall(r"\]\((?!http)(.*?)\)", TEXT):
        assert (ROOT / name).exists()
