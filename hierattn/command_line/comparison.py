"""The command that compares: networks of finite width with their limit, or outputs with a law."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable
from hierattn.command_line.console import print_record, progress
from hierattn.command_line.options import ActivationOption, Json, KernelFile, Seed, Tokens, build_kernel, build_layer, takes

# fields of a layer whose options have other names
OPTIONS = {"sigma_q": "score_scale", "qk_gain": "score_scale", "sigma_v": "value_scale"}
AnyToken = Annotated[int | None, typer.Option(help="The token to describe, from 0 (the first that sees most keys).")]


@takes(build_layer)
def print_comparison(
    layer: Any,
    file: Annotated[Path | None, typer.Argument(help="Observed outputs (network, token, coordinate).")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the networks to compare with their limit.")] = None,
    tokens: Tokens = None,
    activation: ActivationOption = None,
    kernel: KernelFile = None,
    token: AnyToken = None,
    networks: Annotated[int | None, typer.Option(help="Networks drawn for a width (4,194,304).")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare networks of finite width with their limit, or observed outputs with the law; errors are standard errors."""
    if (file is None) == (width is None):
        expected = "either --width or a file of observed outputs"
        raise unusable("--width", expected, "neither" if file is None else "both", "see hierattn compare --help")
    inputs = {"tokens": tokens, "activation": activation, "kernel": kernel}
    which = {"seed": seed} | ({} if token is None else {"token": token})
    if file is not None:
        if networks is not None:
            raise unusable("--networks", "nothing with a file of observed outputs", networks, "leave it out")
        title, found = _with_file(file, layer, inputs, which)
    else:
        title, found = _with_width(width, layer, inputs, which | ({} if networks is None else {"networks": networks}))
    print_record(f"{title} token {found.get('token', token or 0)}", found, as_json)


def _with_file(file: Path, layer: Any, inputs: dict[str, Any], which: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Outputs of a file against the law that it describes, or that options do."""
    import hierattn as ha
    from hierattn.base.files.reading import read_array
    from hierattn.layer.record import layer_in

    if layer_in(file) is not None:
        outputs, law = _described(file, layer, inputs)
    else:
        outputs = read_array(file, "outputs")
        if outputs.ndim != 3:
            raise unusable(f"outputs in {file}", "shape (network, token, coordinate)", outputs.shape)
        if inputs["tokens"] is None and inputs["kernel"] is None:
            inputs = inputs | {"tokens": outputs.shape[1]}
        law = ha.Law(layer, build_kernel(**inputs))
    return f"{file} against {law},", ha.compare_outputs(outputs, law, **which)


def _with_width(width: Any, layer: Any, inputs: dict[str, Any], which: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Networks of a width, with random inputs or with inputs of a kernel, against their limit."""
    import hierattn as ha

    if inputs["kernel"] is not None:
        K = build_kernel(**inputs)
        given, told = {"kernel": K}, f"inputs of the kernel in {inputs['kernel']}, {len(K)} tokens"
    else:
        tokens, activation = 4 if inputs["tokens"] is None else inputs["tokens"], inputs["activation"] or "clip"
        given, told = {"tokens": tokens, "activation": str(activation)}, f"{activation} inputs, {tokens} tokens"
    with progress("networks", which.get("networks", 2**22)) as advance:
        found = ha.compare(layer, width, **given, **which, advance=advance)
    return f"width {width}, {told}, {layer.heads} heads:", found


def _described(file: Path, layer: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Outputs of a file that describes its layer, and the law that follows; options would contradict it."""
    import hierattn as ha
    from hierattn.observed.described import law_of

    plain = ha.Architecture()
    given = [OPTIONS.get(f.name, f.name) for f in fields(layer) if getattr(layer, f.name) != getattr(plain, f.name)]
    given += [name for name in inputs if inputs[name] is not None]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise unusable(str(file), "no options for a file that describes its layer", options, "leave them out, or use diagnose")
    found = ha.read(file)
    if found.kernel is None or found.kernel.ndim == 3:
        raise unusable(str(file), "one kernel for all networks", "one a network, or none", "use hierattn diagnose")
    return found.outputs, law_of(found)
