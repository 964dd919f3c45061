"""The command line: its commands, each with an example, and what a user sees of errors. Heavy imports wait until one runs."""

import sys
from typing import Annotated, NoReturn

import typer

from hierattn import __version__
from hierattn.base.errors import InputError
from hierattn.command_line.capture import write_capture
from hierattn.command_line.comparison import print_comparison
from hierattn.command_line.depth import print_depth
from hierattn.command_line.diagnosis import print_diagnosis, run_demo, write_report
from hierattn.command_line.inference import write_calibration, write_fit
from hierattn.command_line.laws import print_inspection, print_law, write_sample, write_simulation
from hierattn.command_line.programs import print_program
from hierattn.command_line.sweeps import run_sweep

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.command("law", epilog="Example: hierattn law --heads 4 --tokens 8 --mask causal --token 7")(print_law)
app.command("sample", epilog="Example: hierattn sample --heads 4 --tokens 8 --networks 10000 --out draws.nc")(write_sample)
app.command("simulate", epilog="Example: hierattn simulate --width 256 --heads 4 --networks 10000 --out networks.nc")(
    write_simulation
)
app.command("compare", epilog="Example: hierattn compare --width 256 --heads 4")(print_comparison)
app.command("inspect", epilog="Example: hierattn inspect outputs.npz --kernel identity --heads 2")(print_inspection)
app.command("capture", epilog="Example: hierattn capture --model gpt2 --module 1 --networks 500 --out captured.npz")(
    write_capture
)
app.command("fit", epilog="Example: hierattn fit outputs.npz --heads 2 --out fit.nc")(write_fit)
app.command("calibrate", epilog="Example: hierattn calibrate --networks 50 --replicates 100 --out calibration.json")(
    write_calibration
)
app.command("netsor", epilog="Example: hierattn netsor programs.py --program attention --graph attention.svg")(print_program)
app.command("depth", epilog="Example: hierattn depth --layers 12 --width 256 --heads 4 --tokens 8 --networks 200")(print_depth)
app.command("sweep", epilog="Example: hierattn sweep plan.toml --out sweep.zarr --figure sweep.png")(run_sweep)
app.command("diagnose", epilog="Example: hierattn diagnose captured.npz")(print_diagnosis)
app.command("report", epilog="Example: hierattn report fit.nc --out report.html")(write_report)
app.command("demo", epilog="Example: hierattn demo --out demo")(run_demo)


def print_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        print(f"hierattn {__version__}")
        raise typer.Exit


@app.callback()
def hierattn(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The infinite-width law of attention as an explicit hierarchical generative model."""


def run() -> None:
    """The entry point: what a user can mend is one line on stderr and an exit code."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _fail(error.format_message(), error.exit_code)
    except MemoryError as error:
        _fail(f"not enough memory: {error}; ask for fewer tokens, heads or coordinates", 3)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: expected one that can be opened, got: {error.strerror}", 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)


def _fail(message: str, exit_code: int) -> NoReturn:
    for name, option in {"sigma_q": "--score-scale", "sigma_v": "--value-scale"}.items():
        message = message.replace(name, option)
    print("hierattn: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(exit_code)
