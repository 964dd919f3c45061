"""The command that captures outputs of real models: parsing and printing only. Heavy imports wait until it runs."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import InputError, unusable
from hierattn.command_line.console import print_record, progress
from hierattn.command_line.options import Force, Json, Seed, takes

ModelName = StrEnum(
    "ModelName",
    "gpt2 gpt_neox llama mistral qwen2 qwen3 gemma2 gemma3_text olmo2 phi3 gpt_oss deepseek_v3 bert modernbert t5 vit whisper",
)
SIZE = {"layers": 2, "width": 256, "heads": 4, "tokens": 16}  # of a model that is built
Script = Annotated[
    str | None,
    typer.Argument(
        metavar="SCRIPT.py:FUNCTION",
        help="A function (of a seed) that returns (model, inputs); the first inputs serve all networks.",
    ),
]


@takes()
def write_capture(
    script: Script = None,
    out: Annotated[Path, typer.Option(help=".npz file to write.")] = Path("captured.npz"),
    model: Annotated[ModelName | None, typer.Option(help="A Hugging Face model of random weights instead.")] = None,
    layers: Annotated[int | None, typer.Option(help="Its layers (2).", min=1)] = None,
    width: Annotated[int | None, typer.Option(help="Its width n (256).", min=1)] = None,
    heads: Annotated[int | None, typer.Option(help="Its heads (4).", min=1)] = None,
    key_value_heads: Annotated[int | None, typer.Option(help="Its heads of keys and values (all).", min=1)] = None,
    tokens: Annotated[int | None, typer.Option(help="Its tokens, all different (16).", min=1)] = None,
    initializer_range: Annotated[
        float | None, typer.Option(help="Size of its fresh weights (0.02 in most families, where scores vanish).", min=1e-6)
    ] = None,
    networks: Annotated[int, typer.Option(help="Networks: weights drawn anew.", min=1)] = 500,
    module: Annotated[str, typer.Option(help="Which attention layer: its place among all, or its name.")] = "0",
    coordinates: Annotated[int, typer.Option(help="Coordinates written of each network.", min=1)] = 64,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Capture outputs of an attention layer in many networks, with the law that follows from its weights and inputs."""
    from hierattn.base.files.writing import check_new
    from hierattn.frameworks.capture import capture

    check_new(out, force)
    if out.suffix != ".npz":
        raise unusable("--out", "a file ending in .npz", out.name)
    if (script is None) == (model is None):
        got = "neither" if script is None else "both"
        raise unusable("--model", "either --model or SCRIPT.py:FUNCTION", got, "see hierattn capture --help")
    size: dict[str, Any] = {"layers": layers, "width": width, "heads": heads, "tokens": tokens}
    size |= {"key_value_heads": key_value_heads, "initializer_range": initializer_range}
    given = {name: value for name, value in size.items() if value is not None}
    if script is not None and given:
        option = "--" + next(iter(given)).replace("_", "-")
        raise unusable(option, "nothing with a function, which knows it", next(iter(given.values())), "leave it out")
    build, inputs = _function(script) if script is not None else _built(model, SIZE | given)
    chosen = int(module) if module.isdecimal() else module
    with progress("networks", networks) as advance:
        found = capture(build, inputs, networks=networks, module=chosen, coordinates=coordinates, seed=seed, advance=advance)
    record = found.description.record()
    write(out, found, record, seed, force)
    shown = {"networks": found.networks, "tokens": found.s, "coordinates": found.outputs.shape[-1], "seed": seed}
    reasons = [{"code": "remark", "message": remark, "numbers": {}} for remark in record.pop("remarks")]
    print_record(f"{record['module']} -> {out}", {"out": str(out)} | shown | record | {"reasons": reasons}, as_json)


def write(path: Path, observations: Any, record: dict[str, Any], seed: int, force: bool) -> None:
    """Outputs, kernel, mask and the layer's description, and as text where they come from."""
    import numpy as np

    from hierattn.base.files.writing import whole_file
    from hierattn.base.provenance import provenance
    from hierattn.layer.record import arrays_of

    o = observations
    arrays = {"outputs": o.outputs, "kernel": o.kernel, "tokens": o.tokens}
    arrays |= {"heads": np.asarray(o.heads)} if o.layer is None else arrays_of(o.layer)
    arrays["provenance"] = np.asarray(json.dumps(provenance(seed, **record)))
    with whole_file(path, force) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _built(model: Any, size: dict[str, Any]) -> tuple[Any, Any]:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("--model: expected the package torch, got none; pip install 'hierattn[frameworks]'") from None
    from hierattn.frameworks.hugging_face.models import build

    return build(model.value, **size)


def _function(script: str) -> tuple[Any, None]:
    """The function of a user's file."""
    from hierattn.base.loading import run_file

    path, _, name = script.rpartition(":")
    if not path:
        raise unusable("SCRIPT", "SCRIPT.py:FUNCTION", repr(script), "as in model.py:build_model")
    module = run_file(path, f"a function `{name}`")
    if not callable(getattr(module, name, None)):
        raise InputError(f"{path}: expected a function `{name}`, got {', '.join(n for n in vars(module) if n[0] != '_')}")
    return getattr(module, name), None
