"""The command that follows a whole Transformer's tokens through its layers. Heavy imports wait."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hierattn.base.errors import unusable
from hierattn.command_line.console import notice, print_columns, print_record, progress
from hierattn.command_line.options import Force, Heads, Json, Seed, takes

COLUMNS = ("norm", "cosine", "cosine_spread", "effective_rank", "beyond_rank_one", "entropy", "largest", "kurtosis")
PICTURES = (".png", ".pdf", ".svg")


def build_stack(
    config: Annotated[Path | None, typer.Option(help="A Hugging Face config.json, in place of the options below.")] = None,
    token_ids: Annotated[str | None, typer.Option(help="Token ids, such as 5,9,5,3.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens, all different, if there are no ids.")] = 8,
    layers: Annotated[int, typer.Option(help="Blocks.")] = 12,
    width: Annotated[int, typer.Option(help="Coordinates of the residual stream.")] = 256,
    heads: Heads = 4,
    head_dim: Annotated[int | None, typer.Option(help="Inner dimension of a head (width / heads).")] = None,
    hidden: Annotated[int | None, typer.Option("--mlp", help="Hidden units of the MLP; 0 for none (4 x width).")] = None,
    activation: Annotated[str, typer.Option(help="Of the MLP.")] = "gelu",
    norm: Annotated[str, typer.Option(help="rms, layer or none.")] = "rms",
    placement: Annotated[str, typer.Option(help="pre, post, sandwich, branch or parallel.")] = "pre",
    score_scale: Annotated[float, typer.Option(help="sigma_Q sigma_K of every layer.")] = 1.0,
    gain: Annotated[float, typer.Option(help="What branches are multiplied by before they are added.")] = 1.0,
    mask: Annotated[str, typer.Option(help="causal or none.")] = "causal",
    infinite_width: Annotated[bool, typer.Option("--infinite-width", help="The limit of width and hidden units.")] = False,
) -> Any:
    """The stack that the options describe."""
    import hierattn as ha
    from hierattn.sweeps.functions import equal_blocks

    ids = None if token_ids is None else _ids(token_ids)
    if config is not None:
        if ids is None:
            raise unusable("token_ids", "token ids beside a config, such as --token-ids 5,9,5,3", None)
        stack = ha.stack_from_config(config, ids)
        return stack.at_infinite_width() if infinite_width else stack
    stack = equal_blocks(
        layers=layers,
        width=width,
        heads=heads,
        head_dim=head_dim,
        mlp=hidden,
        activation=activation,
        norm=norm,
        placement=placement,
        score_scale=score_scale,
        gain=gain,
        mask=mask,
        tokens=tokens,
        token_ids=ids,
    )
    return stack.at_infinite_width() if infinite_width else stack


@takes(build_stack)
def print_depth(
    stack: Any,
    networks: Annotated[int, typer.Option(help="Networks: independent draws of all weights.")] = 200,
    token: Annotated[int, typer.Option(help="Whose norm and kurtosis are told; -1 is the last.")] = -1,
    out: Annotated[Path | None, typer.Option(help="File for the Gram matrices of all networks (.nc).")] = None,
    figure: Annotated[Path | None, typer.Option(help="File for a picture (.png, .pdf, .svg).")] = None,
    report: Annotated[Path | None, typer.Option(help="File for a page with figures and what they mean (.html).")] = None,
    with_baselines: Annotated[
        bool | None,
        typer.Option(
            "--baselines/--no-baselines", help="Other theories of the same stack too (in pictures, unless told not to)."
        ),
    ] = None,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Follow the tokens of a Transformer at initialisation through its layers: norms, cosines, rank, kurtosis, with errors."""
    import jax

    from hierattn.base.files.writing import check_new
    from hierattn.stack.loss import initial_losses
    from hierattn.stack.summary import look, summary_of

    for path in (figure, report):
        if path is not None:
            check_new(path, force)
    if figure is not None and figure.suffix not in PICTURES:
        raise unusable("figure", f"a name that ends in {', '.join(PICTURES)}", str(figure))
    looks, losses = [], list[Any]()

    def drawn() -> Iterator[dict[str, Any]]:
        with progress("networks", networks) as advance:
            for part in stack.stream(jax.random.key(seed), networks):
                looks.append(look(stack, part, token))
                if stack.unembedding is not None and stack.width is not None:
                    losses.append(initial_losses(jax.random.key(seed + 2 + len(losses)), stack, part))
                yield {"gram": part.gram, "one_minus_cosine": part.apart}
                advance(len(part.gram))

    names = ["embedding", *map(str, range(1, len(stack.blocks) + 1)), *["final norm"] * (stack.final_norm is not None)]
    if out is None:
        for _ in drawn():
            continue
    else:
        _write(out, drawn(), {"network": networks, "layer": len(names), "token": stack.tokens}, stack, seed, force)
    told: dict[str, Any] = summary_of(stack, looks) | (_of_losses(losses) if losses else {})
    others: dict[str, Any] = {}
    if with_baselines or (with_baselines is None and (figure is not None or report is not None)):
        from hierattn.stack.recursions.baselines import baselines

        notice("what other theories say of this stack")
        others = baselines(stack, jax.random.key(seed + 1), networks, token)
    if figure is not None or report is not None:
        from hierattn.base.provenance import provenance
        from hierattn.reporting.depth import Depth

        _draw(Depth(stack, told, others, networks, token, provenance(seed)), figure, report, force)
    title = f"{stack}, {networks} networks"
    if as_json:
        record = told | {"networks": networks, "tokens": stack.tokens, "width": stack.width, "seed": seed}
        print_record(title, record | ({"baselines": others} if others else {}), True)
    else:
        print_columns(title, "layer", names, {name: told[name] for name in COLUMNS if name in told})
        if losses:
            guess = math.log(stack.unembedding.vocabulary)
            print(f"loss {told['loss']:.4f} +- {told['loss_error']:.2g} ({guess:.4f} of a uniform guess)")
        for name, numbers in others.items() if with_baselines else ():
            print_columns(name, "layer", names, {key: numbers[key] for key in ("norm", "cosine")})


def _of_losses(losses: list[Any]) -> dict[str, float]:
    """Mean over networks and tokens, its error and spread, networks being the units."""
    import numpy as np

    each = np.concatenate(losses).mean(axis=1)
    spread = float(each.std(ddof=1))
    return {"loss": float(each.mean()), "loss_error": spread / len(each) ** 0.5, "loss_spread": spread}


def _draw(found: Any, figure: Path | None, report: Path | None, force: bool) -> None:
    """A picture, a page."""
    from hierattn.base.files.writing import whole_file
    from hierattn.reporting import depth

    if figure is not None:
        with whole_file(figure, force) as temporary:
            depth.picture(found).savefig(temporary, format=figure.suffix[1:], dpi=160)
    if report is not None:
        with whole_file(report, force) as temporary:
            temporary.write_text(depth.page(found), encoding="utf-8")


def _write(out: Path, parts: Iterator[Any], dims: dict[str, int], stack: Any, seed: int, force: bool) -> None:
    """Gram matrices of all networks and layers, with their provenance."""
    from hierattn.base.files.writing import write_netcdf
    from hierattn.base.provenance import provenance

    dims = dims | {"token_": dims["token"]}
    write_netcdf(out, dict.fromkeys(("gram", "one_minus_cosine"), dims), parts, provenance(seed, stack=repr(stack)), force)


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise unusable("token_ids", "whole numbers, such as 5,9,5,3", repr(text)) from None
