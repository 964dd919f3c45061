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


def test_the_examples_run_and_print_what_they_say(tmp_path):
    """One program of all of them, shortened; the twelve lines of the first print what is shown."""
    code = "".join(blocks("python"))
    assert len([line for line in blocks("python")[0].splitlines() if line]) == 12
    code = code.replace("=400, num_samples=400", "=2, num_samples=2, progress_bar=False").replace("50]", "5]")
    code = code.replace("networks=500)", "networks=20)").replace("layer=layer)", "layer=layer, log_likelihood=False)")
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    shown = next(block for block in blocks("") if block.startswith("(1000, 4, 16)"))
    assert run.stdout.startswith(shown)


def test_the_command_prints_what_it_says(tmp_path):
    session = next(block for block in blocks("") if block.startswith("$ hierattn law"))
    command, *shown = session.split("\n\n")[0].splitlines()
    program = Path(sys.executable).parent / "hierattn"
    out = subprocess.run([program, *command.split()[2:]], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    without_errors = [re.sub(r" \+- .*", "", line) for line in shown]
    assert [re.sub(r" \+- .*", "", line) for line in out.splitlines()] == without_errors


def test_first_screen_has_the_two_commands():
    assert "make demo" in TEXT[:1500]
    assert "make test" in TEXT[:1500]


def test_files_it_names_are_there():
    for name in re.findall(r"\]\((?!http)(.*?)\)", TEXT):
        assert (ROOT / name).exists()
