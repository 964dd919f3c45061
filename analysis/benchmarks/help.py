"""`hierattn --help` against a bare Typer app with two commands, both as fresh processes in one run."""

import subprocess
import sys
import tempfile
from pathlib import Path

from timing import fastest, record

BARE = """
import typer
app = typer.Typer()
@app.command()
def one(x: int = 1): "One."
@app.command()
def two(x: int = 1): "Two."
app()
"""
with tempfile.TemporaryDirectory() as folder:
    bare = Path(folder) / "bare.py"
    bare.write_text(BARE)
    commands = {"hierattn": [Path(sys.executable).parent / "hierattn"], "bare Typer": [sys.executable, bare]}
    run = lambda command: subprocess.run([*command, "--help"], check=True, capture_output=True)  # noqa: E731
    times = fastest({name: lambda command=command: run(command) for name, command in commands.items()}, repeats=15)
for name, seconds in times.items():
    print(f"{name:10s} --help {seconds * 1e3:.0f} ms")
ratio = times["hierattn"] / times["bare Typer"]
print(f"ratio {ratio:.2f}")
record("help", {"hierattn / bare Typer app": ratio})
