"""The command line: parsing and printing only. Heavy imports wait until a command runs."""

import inspect
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hierattn.console import print_record, progress
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
MethodName = StrEnum("MethodName", ["collapsed", "explicit"])
Tokens = Annotated[int | None, typer.Option(help="Tokens in the sequence (4, or those of the kernel or file).")]
Heads = Annotated[int, typer.Option(help="Heads.")]
HeadDim = Annotated[int | None, typer.Option(help="Inner dimension of a head (infinite; at finite width the width).")]
ActivationOption = Annotated[ActivationName | None, typer.Option(help="The paper's inputs through it (clip).")]
KernelFile = Annotated[Path | None, typer.Option(help="File with the kernel K of the inputs instead.")]
ScoreScale = Annotated[float, typer.Option(help="sigma_Q sigma_K.")]
ValueScale = Annotated[float, typer.Option(help="sigma_V sigma_O.")]
Mask = Annotated[MaskName, typer.Option(help="Keys a query may look at.")]
Scaling = Annotated[ScalingName, typer.Option(help="Scores divided by sqrt(n) or by n.")]
Token = Annotated[int, typer.Option(help="The token to describe, from 0.")]
Out = Annotated[Path, typer.Option(help="netCDF file to write.")]
Scores = Annotated[bool, typer.Option("--scores", help="Write the scores too.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**32 - 1)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def build_layer(
    heads: Heads = 1,
    head_dim: HeadDim = None,
    score_scale: ScoreScale = 1.0,
    value_scale: ValueScale = 1.0,
    mask: Mask = MaskName.none,
    scaling: Scaling = ScalingName.sqrt,
) -> Any:
    """The layer that the options of a command describe."""
    import hierattn as ha

    return ha.Architecture(
        heads=heads,
        head_dim=head_dim,
        mask=None if mask == MaskName.none else mask.value,
        scaling=scaling.value,
        sigma_q=score_scale,
        sigma_v=value_scale,
    )


def build_kernel(tokens: Tokens = None, activation: ActivationOption = None, kernel: KernelFile = None) -> Any:
    """The kernel that the options of a command describe."""
    import hierattn as ha

    if kernel is None:
        return ha.kernels.activation(activation or "clip", 4 if tokens is None else tokens)
    if activation is not None:
        raise unusable("--activation", "either an activation or a kernel", "both", "leave one out")
    K = ha.kernels.read(kernel)
    if tokens not in (None, K.shape[-1]):
        raise unusable("--tokens", f"the kernel's {K.shape[-1]} tokens", tokens, "leave it out")
    return K


def takes(*builders: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these builders, and pass it what they build, in order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [list(inspect.signature(builder).parameters.values()) for builder in builders]
        own = list(inspect.signature(command).parameters.values())[len(builders) :]

        @wraps(command)
        def wrapped(**given: Any) -> None:
            parts = [{option.name: given.pop(option.name) for option in group} for group in options]
            command(*(builder(**part) for builder, part in zip(builders, parts, strict=True)), **given)

        required = [x for x in own if x.default is x.empty]
        parameters = [*required, *(x for group in options for x in group), *(x for x in own if x not in required)]
        wrapped.__signature__ = inspect.Signature([x.replace(kind=x.KEYWORD_ONLY) for x in parameters])  # type: ignore[attr-defined]
        return wrapped

    return decorate


@app.command("law")
@takes(build_layer, build_kernel)
def print_law(layer: Any, K: Any, token: Token = 0, seed: Seed = 0, as_json: Json = False) -> None:
    """Print the law of one token: variance, excess kurtosis, quantiles and tail probabilities of |y|, with errors."""
    import hierattn as ha
    from hierattn.token_law import summary

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
    from hierattn.storage import digest

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
    from hierattn.storage import read_array

    if (file is None) == (width is None):
        expected = "either --width or a file of observed outputs"
        raise unusable("--width", expected, "neither" if file is None else "both", "see hierattn compare --help")
    if width is None and file is not None:
        if networks is not None:
            raise unusable("--networks", "nothing with a file of observed outputs", networks, "leave it out")
        outputs = read_array(file, "outputs")
        if outputs.ndim != 3:
            raise unusable(f"outputs in {file}", "shape (network, token, coordinate)", outputs.shape)
        law = ha.Law(layer, build_kernel(outputs.shape[1] if tokens is None and kernel is None else tokens, activation, kernel))
        print_record(f"{file} against {law}, token {token}", ha.compare_outputs(outputs, law, token, seed), as_json)
        return
    if kernel is not None or width is None:
        raise unusable("--kernel", "--activation with --width", "a kernel", "random inputs have no fixed kernel")
    count, phi = 2**22 if networks is None else networks, (activation or ActivationName.clip).value
    tokens = 4 if tokens is None else tokens
    with progress("networks", count) as advance:
        found = ha.compare(layer, width, tokens, phi, token, count, seed, advance)
    print_record(f"width {width}, {phi} inputs, {tokens} tokens, {layer.heads} heads: token {token}", found, as_json)


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

    from hierattn.storage import provenance, write_netcdf

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
