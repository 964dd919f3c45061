"""The command line: parsing and printing only. Heavy imports wait until a command runs."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hierattn.errors import InputError, unusable

app = typer.Typer(
    help="The infinite-width law of attention as an explicit hierarchical generative model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ActivationName = StrEnum("ActivationName", ["identity", "clip", "relu", "erf", "gelu", "tanh"])
MaskName = StrEnum("MaskName", ["none", "causal"])
ScalingName = StrEnum("ScalingName", ["sqrt", "linear"])
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**32 - 1)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def build_law(
    tokens: Annotated[int | None, typer.Option(help="Tokens in the sequence (4, or those of the kernel).")] = None,
    heads: Annotated[int, typer.Option(help="Heads.")] = 1,
    head_dim: Annotated[int | None, typer.Option(help="Inner dimension of a head (infinite).")] = None,
    activation: Annotated[ActivationName | None, typer.Option(help="The paper's inputs through it (clip).")] = None,
    kernel: Annotated[Path | None, typer.Option(help="File with the kernel K of the inputs instead.")] = None,
    score_scale: Annotated[float, typer.Option(help="sigma_Q sigma_K.")] = 1.0,
    value_scale: Annotated[float, typer.Option(help="sigma_V sigma_O.")] = 1.0,
    mask: Annotated[MaskName, typer.Option(help="Keys a query may look at.")] = MaskName.none,
    scaling: Annotated[ScalingName, typer.Option(help="Scores divided by sqrt(n) or by n.")] = ScalingName.sqrt,
) -> Any:
    """The law that the options of a command describe."""
    import hierattn as ha

    if kernel is None:
        K = ha.kernels.activation(activation or "clip", 4 if tokens is None else tokens)
    elif activation is not None:
        raise unusable("--activation", "either an activation or a kernel", "both", "leave one out")
    else:
        K = ha.kernels.read(kernel)
        if tokens not in (None, K.shape[-1]):
            raise unusable("--tokens", f"the kernel's {K.shape[-1]} tokens", tokens, "leave it out")
    layer = ha.Architecture(
        heads=heads,
        head_dim=head_dim,
        mask=None if mask == MaskName.none else mask.value,
        scaling=scaling.value,
        sigma_q=score_scale,
        sigma_v=value_scale,
    )
    return ha.Law(layer, K)


def takes_law(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `build_law` and pass it the law they describe."""
    options = list(inspect.signature(build_law).parameters.values())
    own = [x for x in inspect.signature(command).parameters.values() if x.name != "law"]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        command(build_law(**{option.name: given.pop(option.name) for option in options}), **given)

    required = [x for x in own if x.default is x.empty]
    parameters = [*required, *options, *(x for x in own if x not in required)]
    wrapped.__signature__ = inspect.Signature([x.replace(kind=x.KEYWORD_ONLY) for x in parameters])  # type: ignore[attr-defined]
    return wrapped


@app.command("law")
@takes_law
def print_law(
    law: Any,
    token: Annotated[int, typer.Option(help="The token to describe, from 0.")] = 0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Print the law of one token: variance, excess kurtosis and the infinite-head Gaussian's variance, with errors."""
    from hierattn.moments import summary

    _print(f"{law}, token {token}", summary(law, token, seed), as_json)


@app.command("sample")
@takes_law
def write_sample(
    law: Any,
    out: Annotated[Path, typer.Option(help="netCDF file to write.")],
    networks: Annotated[int, typer.Option(help="Networks: independent draws of the scores.")] = 1000,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network, which share its scores.")] = 16,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw outputs (network, token, coordinate) from the law and write them with their provenance."""
    import jax

    from hierattn.storage import digest, provenance, write_netcdf

    (queries, keys), H = law.shape, law.layer.heads
    shapes = {"outputs": {"network": networks, "token": queries, "coordinate": coordinates}}
    if scores:
        shapes["scores"] = {"network": networks, "head": H, "query": queries, "key": keys}

    def parts() -> Iterator[dict[str, Any]]:
        with _progress("networks", networks) as advance:
            for drawn in law.stream(jax.random.key(seed), networks, coordinates):
                yield {"outputs": drawn.y} | ({"scores": drawn.p} if scores else {})
                advance(len(drawn.y))

    origin = provenance(seed, law=repr(law), dtype=str(law.dtype), kernel_sha256=digest(law.L_k))
    write_netcdf(out, shapes, parts(), origin, force)
    _print(f"{law} -> {out}", {"out": str(out), "networks": networks, "coordinates": coordinates, "seed": seed}, as_json)


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


def _print(title: str, result: dict[str, Any], as_json: bool) -> None:
    """A result as JSON, as a table on a terminal, or as plain lines elsewhere; an error stands beside its number."""
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return
    errors = {name: "" if error is None else f"+- {error:.1g}" for name, error in result.items() if name.endswith("_error")}
    rows = [
        (name.replace("_", " "), _text(value), errors.get(f"{name}_error", ""))
        for name, value in result.items()
        if name not in errors and name != "reasons"
    ]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table, shown = Table(show_header=False), 3 if errors else 2
        for row in rows:
            table.add_row(*row[:shown])
        Console().print(title, table, sep="\n", highlight=False, soft_wrap=True, markup=False)
    else:
        print("\n".join([title, *(f"{name:24s} {value} {error}".rstrip() for name, value, error in rows)]))
    for reason in result.get("reasons", []):
        print(reason["message"])


def _text(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
