"""Options that several commands share, and what they describe. Heavy imports wait until a command runs."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable


def score_functions(incomplete: str) -> list[str]:
    """Names that a shell completes: those of `hierattn.layer.scores`, the one place that lists them."""
    from hierattn.layer.scores import SCORE_FUNCTIONS

    return [name for name in SCORE_FUNCTIONS if name.startswith(incomplete)]


ActivationName = StrEnum("ActivationName", ["identity", "clip", "relu", "erf", "gelu", "tanh"])
MaskName = StrEnum("MaskName", ["none", "causal"])
ScalingName = StrEnum("ScalingName", ["sqrt", "linear"])
MethodName = StrEnum("MethodName", ["collapsed", "explicit"])
Tokens = Annotated[int | None, typer.Option(help="Tokens in the sequence (4, or those of the kernel or file).")]
Heads = Annotated[int, typer.Option(help="Heads.")]
HeadDim = Annotated[int | None, typer.Option(help="Inner dimension of a head (infinite; at finite width the width).")]
ActivationOption = Annotated[ActivationName | None, typer.Option(help="The paper's inputs through it (clip).")]
KernelFile = Annotated[Path | None, typer.Option(help="File with the kernel K of the inputs instead.")]
ScoreScale = Annotated[float, typer.Option(help="sigma_Q sigma_K, or the gain of normed queries and keys.")]
ValueScale = Annotated[float, typer.Option(help="sigma_V sigma_O.")]
Mask = Annotated[MaskName, typer.Option(help="Keys a query may look at.")]
Scaling = Annotated[ScalingName, typer.Option(help="Scores divided by sqrt(n) or by n.")]
ScoreFunction = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How scores become weights: softmax, identity, or another of hierattn.layer.scores.",
        autocompletion=score_functions,
    ),
]
NormName = StrEnum("NormName", ["none", "rms", "layer", "rms_all"])
QkNorm = Annotated[NormName, typer.Option(help="Norm of queries and keys: over a head, or over all heads together.")]
QkEps = Annotated[float, typer.Option(help="Its eps.")]
Cap = Annotated[float | None, typer.Option(help="Soft cap c of scores: c tanh(p / c).")]
Sink = Annotated[float | None, typer.Option(help="Logit of a key without a value.")]
SinkScale = Annotated[float | None, typer.Option(help="Standard deviation of the sinks over networks.")]
Window = Annotated[int | None, typer.Option(help="Only keys of fewer positions away are seen.")]
Chunk = Annotated[int | None, typer.Option(help="Only keys of the same chunk of so many positions are seen.")]
Token = Annotated[int, typer.Option(help="The token to describe, from 0.")]
Out = Annotated[Path, typer.Option(help="netCDF file to write.")]
Scores = Annotated[bool, typer.Option("--scores", help="Write the scores too.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**32 - 1)]
Observed = Annotated[
    Path, typer.Argument(help="File of outputs (network, token, coordinate): .npy .npz .nc .zarr .safetensors .csv.")
]
ObservedFiles = Annotated[
    list[Path],
    typer.Argument(
        help="File of outputs (network, token, coordinate): .npy .npz .nc .zarr .safetensors .csv; several files, or one with "
        "layers as first axis, for a fit each."
    ),
]
ObservedKernel = Annotated[
    str | None, typer.Option(metavar="FILE|identity|inferred", help="Kernel K of the inputs; identity:4 is one of 4 tokens.")
]
ObservedInputs = Annotated[Path | None, typer.Option(help="File with the inputs of the networks instead.")]
ObservedHeads = Annotated[int | None, typer.Option(help="Heads (those that the file says, if it does).")]
ObservedTokens = Annotated[
    str | None, typer.Option(metavar="0,2,...", help="Which of the kernel's tokens the outputs hold (all).")
]
ObservedMask = Annotated[str | None, typer.Option(metavar="causal|none|FILE", help="Keys a query may look at (the file's).")]
Networks = Annotated[int | None, typer.Option(help="Use the first so many networks (all).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def build_layer(
    heads: Heads = 1,
    head_dim: HeadDim = None,
    score_scale: ScoreScale = 1.0,
    value_scale: ValueScale = 1.0,
    mask: Mask = MaskName.none,
    scaling: Scaling = ScalingName.sqrt,
    score_function: ScoreFunction = "softmax",
    qk_norm: QkNorm = NormName.none,
    qk_eps: QkEps = 0.0,
    cap: Cap = None,
    sink: Sink = None,
    sink_scale: SinkScale = None,
    window: Window = None,
    chunk: Chunk = None,
) -> Any:
    """The layer that the options of a command describe."""
    import hierattn as ha

    return ha.Architecture(
        heads=heads,
        head_dim=head_dim,
        mask=None if mask == MaskName.none else mask.value,
        scaling=scaling.value,
        score_function=score_function,
        qk_norm=None if qk_norm == NormName.none else qk_norm.value,
        qk_eps=qk_eps,
        cap=cap,
        sink=sink,
        sink_scale=sink_scale,
        window=window,
        chunk=chunk,
        sigma_v=value_scale,
        sigma_q=score_scale if qk_norm == NormName.none else 1.0,
        qk_gain=1.0 if qk_norm == NormName.none else score_scale,
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


def whole_numbers(text: str, option: str) -> list[int]:
    """Numbers with commas between them."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise unusable(option, "whole numbers with commas between them", repr(text), f"as in {option} 0,2")
    return [int(word) for word in words]


def build_observations(
    file: Observed,
    kernel: ObservedKernel = None,
    inputs: ObservedInputs = None,
    heads: ObservedHeads = None,
    tokens: ObservedTokens = None,
    mask: ObservedMask = None,
    networks: Networks = None,
) -> Any:
    """The observations that the options of a command describe."""
    import hierattn as ha

    numbers = None if tokens is None else whole_numbers(tokens, "--tokens")
    return ha.read(file, kernel, inputs=inputs, tokens=numbers, heads=heads, mask=mask, networks=networks)


def build_layers(
    file: ObservedFiles,
    kernel: ObservedKernel = None,
    inputs: ObservedInputs = None,
    heads: ObservedHeads = None,
    tokens: ObservedTokens = None,
    mask: ObservedMask = None,
    networks: Networks = None,
) -> Any:
    """Name -> what reads the observations of that layer: of one file, of several, or of one with an axis of layers."""
    from hierattn.observed.layers import read_layers

    numbers = None if tokens is None else whole_numbers(tokens, "--tokens")
    known = {"kernel": kernel, "inputs": inputs, "tokens": numbers, "heads": heads, "mask": mask, "networks": networks}
    return read_layers(file, **known)


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
