"""The command for programs: parsing and printing only. Heavy imports wait until it runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import InputError
from hierattn.command_line.console import print_record, progress
from hierattn.command_line.options import Force, Json, Seed, takes

COORDINATES, LIMIT, SHOWN = 4, 100_000, 8
File = Annotated[Path, typer.Argument(help="A .py file with programs: variables, or functions without arguments `-> Program`.")]
Name = Annotated[str | None, typer.Option(help="Which of its programs, if there are several.")]
Width = Annotated[int, typer.Option(help="Width n of the networks to compare with the limit.", min=1)]
Networks = Annotated[int, typer.Option(help="Networks of that width.", min=20)]
Graph = Annotated[Path | None, typer.Option(help="SVG file to draw the program's graph in.")]


@takes()
def print_program(
    file: File,
    program: Name = None,
    width: Width = 256,
    networks: Networks = 20_000,
    graph: Graph = None,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Print a NETSOR program, its kernels and the covariance of its scalars, and compare networks of a width with its limit."""
    from hierattn.base.files.writing import whole_file
    from hierattn.netsor.graph import graph as drawn_graph
    from hierattn.netsor.limit import Limit

    chosen = load(file, program)
    if graph is not None:
        with whole_file(graph, force) as temporary:
            temporary.write_text(drawn_graph(chosen))
    law, coordinates = Limit(chosen, seed), min(COORDINATES, width)
    found = describe(law)
    record = compared(law, width, networks, coordinates, seed)
    if as_json:
        sizes = {"width": width, "networks": networks, "coordinates": coordinates, "seed": seed}
        print_record("", {"program": str(chosen)} | found | sizes | record, as_json)
        return
    print(chosen)
    print_matrices(found)
    print_record(f"method {law.method}; width {width}, {networks} networks against {LIMIT} of the limit:", record, as_json)


def compared(law: Any, width: int, networks: int, coordinates: int, seed: int) -> dict[str, Any]:
    """Networks of a width against the limit of their program."""
    import jax
    import numpy as np

    from hierattn.netsor import simulate
    from hierattn.numerics.two_samples import two_samples

    key_finite, key_limit = jax.random.split(jax.random.key(seed))
    parts = []
    with progress("networks", networks) as advance:
        for _, y in simulate.stream(key_finite, law.program, width, networks, coordinates):
            parts.append(np.asarray(y))
            advance(len(y))
    return two_samples(np.concatenate(parts), law.sample(key_limit, LIMIT, coordinates), seed)


def print_matrices(found: dict[str, Any]) -> None:
    """Kernels and covariances with their errors; of large ones the first rows and columns."""
    import numpy as np

    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name.replace('_', ' ')} +- {found[f'{name}_error']:.1g}")
            print("  " + np.array2string(np.array(value)[:SHOWN, :SHOWN], precision=6, suppress_small=True, prefix="  "))
            if len(value) > SHOWN:
                print(f"  ... {len(value)} rows and columns; --json has all")


def describe(law: Any) -> dict[str, Any]:
    """Kernels of named vectors and covariance of the scalars, with their largest errors."""
    from hierattn.netsor.program import Vectors

    program = law.program
    vectors = {name: f for f, name in program.names.items() if isinstance(f, Vectors)}
    estimates = {f"kernel_{name}": law.kernel(f) for name, f in vectors.items()}
    if program.dots:
        estimates["score_covariance"] = law.kappa_prime
    found: dict[str, Any] = {}
    for name, (value, error) in estimates.items():
        found |= {name: value.tolist(), f"{name}_error": float(error.max())}
    return found | {"method": law.method}


def load(path: Path, name: str | None) -> Any:
    """The program of a file, or the one of this name."""
    from hierattn.base.loading import run_file
    from hierattn.netsor import Program

    there: dict[str, Any] = {}
    for key, value in vars(run_file(path, "a program")).items():
        returned = getattr(value, "__annotations__", {}).get("return") if callable(value) else None
        if isinstance(value, Program) or returned in (Program, "Program"):
            there[key] = value
    if not there:
        raise InputError(f"{path}: expected a program, got none; make one with hierattn.netsor.Program")
    if name is None and len(there) > 1:
        raise InputError(f"{path}: expected one program, got {', '.join(there)}; choose one with --program")
    if name is not None and name not in there:
        raise InputError(f"--program: expected one of {', '.join(there)}, got {name}")
    chosen = there[name or next(iter(there))]
    return chosen if isinstance(chosen, Program) else chosen()
