"""The command line: parsing and printing only. Heavy imports wait until a command runs."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hierattn.base.errors import InputError, unusable
from hierattn.command_line.capture import write_capture
from hierattn.command_line.console import print_record, progress
from hierattn.command_line.diagnosis import print_diagnosis, run_demo, write_report
from hierattn.command_line.inference import write_calibration, write_fit
from hierattn.command_line.options import (
    ActivationName,
    ActivationOption,
    Force,
    Json,
    KernelFile,
    MethodName,
    Out,
    Scores,
    Seed,
    Token,
    Tokens,
    build_kernel,
    build_layer,
    build_observations,
    takes,
)
from hierattn.command_line.programs import print_program

app = typer.Typer(
    help="The infinite-width law of attention as an explicit hierarchical generative model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("law")
@takes(build_layer, build_kernel)
def print_law(layer: Any, K: Any, token: Token = 0, seed: Seed = 0, as_json: Json = False) -> None:
    """Print the law of one token: variance, excess kurtosis, quantiles and tail probabilities of |y|, with errors."""
    import hierattn as ha
    from hierattn.law.token_law import summary

    law = ha.Law(layer, K)
    print_record(f"{law}, token {token}", summary(law, token, seed), as_json)


@app.command("sample")
@takes(build_layer, build_kernel)
def write_sample(
    layer: Any,
    K: Any,
    out: Out,
    networks: Annotated[int, typer.Option(help="Networks: independent draws of the scores.")] = 1000,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network, which share its scores.")] = 16,
    scores: Scores = False,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw outputs (network, token, coordinate) from the law and write them with their provenance."""
    import hierattn as ha
    from hierattn.base.provenance import digest

    law = ha.Law(layer, K)
    origin = {"law": repr(law), "dtype": str(law.dtype), "kernel_sha256": digest(law.L_k)}
    _write_draws(law.stream, law, out, networks, coordinates, scores, force, seed, as_json, origin)


@app.command("simulate")
@takes(build_layer)
def write_simulation(
    layer: Any,
    out: Out,
    width: Annotated[int, typer.Option(help="Width n of the networks.")],
    tokens: Annotated[int, typer.Option(help="Tokens in the sequence.")] = 4,
    activation: Annotated[ActivationName, typer.Option(help="Inputs phi(W h) through it.")] = ActivationName.clip,
    method: Annotated[MethodName, typer.Option(help="Exact without weights, or every weight.")] = MethodName.collapsed,
    networks: Annotated[int, typer.Option(help="Networks.")] = 1000,
    coordinates: Annotated[int, typer.Option(help="Coordinates of each network.")] = 16,
    scores: Scores = False,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw outputs of networks of finite width, with the paper's random inputs, and write them with their provenance."""
    from functools import partial

    import hierattn as ha

    inputs = ha.RandomInputs(width, tokens, activation.value)
    law = ha.FiniteWidth(layer, inputs)
    explicit = partial(ha.network.stream, layer=layer, inputs=inputs)
    stream = law.stream if method == MethodName.collapsed else lambda key, m, c: explicit(key, networks=m, coordinates=c)
    origin = {"law": repr(law), "activation": activation.value, "method": method.value, "dtype": str(law.dtype)}
    _write_draws(stream, law, out, networks, coordinates, scores, force, seed, as_json, origin)


@app.command("compare")
@takes(build_layer)
def print_comparison(
    layer: Any,
    file: Annotated[Path | None, typer.Argument(help="Observed outputs (network, token, coordinate).")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the networks to compare with their limit.")] = None,
    tokens: Tokens = None,
    activation: ActivationOption = None,
    kernel: KernelFile = None,
    token: Token = 0,
    networks: Annotated[int | None, typer.Option(help="Networks drawn for a width (4,194,304).")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare networks of finite width with their limit, or observed outputs with the law; errors are standard errors."""
    import hierattn as ha
    from hierattn.base.files.reading import read_array
    from hierattn.layer.record import layer_in

    if (file is None) == (width is None):
        expected = "either --width or a file of observed outputs"
        raise unusable("--width", expected, "neither" if file is None else "both", "see hierattn compare --help")
    if width is None and file is not None:
        if networks is not None:
            raise unusable("--networks", "nothing with a file of observed outputs", networks, "leave it out")
        if layer_in(file) is not None:
            outputs, law = _described(file, layer, {"tokens": tokens, "activation": activation, "kernel": kernel}, seed)
        else:
            outputs = read_array(file, "outputs")
            if outputs.ndim != 3:
                raise unusable(f"outputs in {file}", "shape (network, token, coordinate)", outputs.shape)
            known = outputs.shape[1] if tokens is None and kernel is None else tokens
            law = ha.Law(layer, build_kernel(known, activation, kernel))
        print_record(f"{file} against {law}, token {token}", ha.compare_outputs(outputs, law, token, seed), as_json)
        return
    if kernel is not None or width is None:
        raise unusable("--kernel", "--activation with --width", "a kernel", "random inputs have no fixed kernel")
    count, phi = 2**22 if networks is None else networks, (activation or ActivationName.clip).value
    tokens = 4 if tokens is None else tokens
    with progress("networks", count) as advance:
        found = ha.compare(layer, width, tokens, phi, token, count, seed, advance)
    print_record(f"width {width}, {phi} inputs, {tokens} tokens, {layer.heads} heads: token {token}", found, as_json)


@app.command("inspect")
@takes(build_observations)
def print_inspection(observations: Any, as_json: Json = False) -> None:
    """Show what was understood of a file of observed outputs: sizes, scales, the kernel's spectrum, tokens that look wrong."""
    from hierattn.observed.inspection import describe

    print_record(str(observations), describe(observations), as_json)


app.command("capture")(write_capture)
app.command("fit")(write_fit)
app.command("calibrate")(write_calibration)
app.command("netsor")(print_program)
app.command("diagnose")(print_diagnosis)
app.command("report")(write_report)
app.command("demo")(run_demo)


def _described(file: Path, layer: Any, others: dict[str, Any], seed: int) -> tuple[Any, Any]:
    """Outputs of a file that describes its layer, and the law that follows; options would contradict it."""
    import hierattn as ha
    from hierattn.diagnostics.subject import SCALES, of_observations

    plain = ha.Architecture()
    given = [name for name in ("heads", "head_dim", "mask", "scaling") if getattr(layer, name) != getattr(plain, name)]
    given += [name for name in SCALES if getattr(layer, name)[0] != 1] + [name for name in others if others[name] is not None]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise unusable(str(file), "no options for a file that describes its layer", options, "leave them out, or use diagnose")
    found = ha.read(file)
    if found.kernel is None or found.kernel.ndim == 3:
        raise unusable(str(file), "one kernel for all networks", "one a network, or none", "use hierattn diagnose")
    scales: dict[str, Any] = {name: float(getattr(found.layer, name)[0]) for name in SCALES}
    return found.outputs, of_observations(found, None, scales, seed).law


def _write_draws(
    stream: Callable[..., Iterator[Any]],
    law: Any,
    out: Path,
    networks: int,
    coordinates: int,
    scores: bool,
    force: bool,
    seed: int,
    as_json: bool,
    origin: dict[str, Any],
) -> None:
    import jax

    from hierattn.base.files.writing import write_netcdf
    from hierattn.base.provenance import provenance

    (queries, keys), H = law.shape, law.layer.heads
    shapes = {"outputs": {"network": networks, "token": queries, "coordinate": coordinates}}
    if scores:
        shapes["scores"] = {"network": networks, "head": H, "query": queries, "key": keys}

    def parts() -> Iterator[dict[str, Any]]:
        with progress("networks", networks) as advance:
            for drawn in stream(jax.random.key(seed), networks, coordinates):
                yield {"outputs": drawn.y} | ({"scores": drawn.p} if scores else {})
                advance(len(drawn.y))

    write_netcdf(out, shapes, parts(), provenance(seed, **origin), force)
    print_record(f"{law} -> {out}", {"out": str(out), "networks": networks, "coordinates": coordinates, "seed": seed}, as_json)


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
