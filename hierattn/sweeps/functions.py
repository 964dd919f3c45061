"""What can be asked at the points of a sweep by name: options are plain numbers and words, results are numbers with errors."""

import inspect
from collections.abc import Callable
from typing import Any

from hierattn.base.errors import InputError, unusable

LAYER = {"score_scale": "sigma_q", "value_scale": "sigma_v"}  # options of a layer, as commands call them -> its fields
LAYER |= {name: name for name in ("heads", "head_dim", "key_value_heads", "mask", "scaling", "score_function")}
LAYER |= {name: name for name in ("window", "chunk", "qk_norm", "qk_eps", "cap", "sink", "sink_scale")}
COLUMNS = ("mean", "sd", "eti90_lb", "eti90_ub")


def layer_of(options: dict[str, Any]) -> Any:
    """The layer that these options describe."""
    from hierattn.layer.architecture import Architecture

    told = {LAYER[name]: value for name, value in options.items()}
    if told.get("qk_norm") is not None and "sigma_q" in told:
        told["qk_gain"] = told.pop("sigma_q")
    return Architecture(**told)


def kernel_of(tokens: int, activation: str, cosine: float | None) -> Any:
    """The kernel of random inputs through an activation, or of tokens whose cosines are all the same."""
    from hierattn.layer import kernels

    return kernels.activation(activation, tokens) if cosine is None else kernels.equicorrelated(tokens, cosine)


def numeric(record: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a record of ours, without its words and reasons."""
    return {name: x for name, x in record.items() if x is None or isinstance(x, (int, float))}


def law(
    *,
    tokens: int = 4,
    activation: str = "clip",
    cosine: float | None = None,
    token: int = 0,
    moments: bool = False,
    seed: int = 0,
    **layer: Any,
) -> dict[str, Any]:
    """One token's law: variance, excess kurtosis, quantiles and tails; with `moments` only the first two."""
    from hierattn.law import moments as of_moments
    from hierattn.law import token_law
    from hierattn.law.law import Law

    summary = of_moments.summary if moments else token_law.summary
    return numeric(summary(Law(layer_of(layer), kernel_of(tokens, activation, cosine)), token, seed))


def compare(
    *, width: int, tokens: int = 4, activation: str = "clip", networks: int = 2**22, seed: int = 0, **layer: Any
) -> dict[str, Any]:
    """Networks of a width against their limit: divergences, moments and tails, with errors."""
    from hierattn.diagnostics.comparison.limit import compare as found

    return numeric(found(layer_of(layer), width, tokens, activation, networks=networks, seed=seed))


def equal_blocks(
    *,
    layers: int = 12,
    width: int = 256,
    heads: int = 4,
    head_dim: int | None = None,
    mlp: int | None = None,
    activation: str = "gelu",
    norm: str = "rms",
    placement: str = "pre",
    score_scale: float = 1.0,
    gain: float = 1.0,
    skip: float = 1.0,
    mask: str = "causal",
    tokens: int = 8,
    token_ids: list[int] | None = None,
) -> Any:
    """A stack of equal blocks, from plain numbers and words."""
    from hierattn.layer.architecture import Architecture
    from hierattn.stack.blocks import MLP, Block, Norm
    from hierattn.stack.embedding import Embedding
    from hierattn.stack.stack import Stack

    kind = None if norm == "none" else Norm(kind=norm)
    attention = Architecture(
        heads=heads, head_dim=head_dim or max(1, width // heads), sigma_q=score_scale, mask=None if mask == "none" else mask
    )
    hidden = 4 * width if mlp is None else mlp
    block = Block(
        attention=attention,
        mlp=MLP(width=hidden, activation=activation) if hidden else None,
        norm=kind,
        placement="none" if kind is None else placement,
        attention_gain=gain,
        mlp_gain=gain,
        skip=skip,
    )
    embedding = Embedding.independent(tokens) if token_ids is None else Embedding.of_tokens(token_ids)
    final = kind if placement in ("pre", "parallel", "sandwich", "branch") else None
    return Stack(width=width, embedding=embedding, blocks=(block,) * layers, final_norm=final)


def depth(
    *,
    networks: int = 200,
    token: int = -1,
    config: str | None = None,
    token_ids: list[int] | None = None,
    infinite_width: bool = False,
    seed: int = 0,
    **stack: Any,
) -> dict[str, Any]:
    """A stack's tokens layer by layer: norms, cosines, ranks, entropies, kurtosis, with errors over networks.

    Of a config.json and token ids, or of equal blocks with these options.
    """
    import jax
    from xarray import DataArray

    from hierattn.stack.families import stack_from_config
    from hierattn.stack.summary import look, summary_of

    if config is not None and stack:
        raise unusable("config", "a config, or options of equal blocks", f"both, {', '.join(stack)}", "leave one out")
    if config is not None and token_ids is None:
        raise unusable("token_ids", "token ids beside a config", None)
    described = equal_blocks(**stack, token_ids=token_ids) if config is None else stack_from_config(config, token_ids)
    described = described.at_infinite_width() if infinite_width else described
    told = summary_of(described, [look(described, part, token) for part in described.stream(jax.random.key(seed), networks)])
    return {name: DataArray(_floats(x), dims="layer") for name, x in told.items()}


def _floats(values: Any) -> Any:
    import numpy as np

    return np.array([np.nan if x is None else x for x in values], float)


def fit(
    *,
    file: str,
    model: str = "limit_law",
    method: str = "auto",
    networks: int | None = None,
    budget: str | None = None,
    chains: int = 4,
    seed: int = 0,
) -> dict[str, Any]:
    """The parameters of a file of outputs: means, spreads, 90 % intervals, and whether chains converged."""
    import json

    from hierattn.inference.fitting import fit as fitted
    from hierattn.observed.observations import read

    tree = fitted(read(file, networks=networks), model, method=method, budget=budget, chains=chains, seed=seed)
    table = json.loads(tree.attrs["parameters"])
    numbers = {f"{name}_{column}": row.get(column) for name, row in table.items() for column in COLUMNS if column in row}
    return {"converged": tree.attrs["verdict"] == "CONVERGED", **numbers}


def diagnose(
    *,
    file: str,
    networks: int | None = None,
    score_scale: float | None = None,
    value_scale: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Do a file's outputs follow the law: 1, 0, or neither (NaN); and every number of the diagnosis."""
    from hierattn.diagnostics.diagnosis import diagnose as diagnosed
    from hierattn.observed.observations import read

    found = diagnosed(read(file, networks=networks), score_scale=score_scale, value_scale=value_scale, seed=seed)
    return {"consistent": found.consistent} | numeric(found.record)


def replicate(
    *,
    number: int,
    networks: int,
    coordinates: int,
    tokens: int = 4,
    cosine: float = 0.0,
    observed: list[int] | None = None,
    method: str = "auto",
    seed: int = 0,
    **layer: Any,
) -> dict[str, Any]:
    """One data set of a calibration and its fit: ranks of the truth, which intervals cover it, whether chains converged."""
    from hierattn.inference import calibration

    K = kernel_of(tokens, "clip", cosine)
    found = calibration.replicate(
        calibration.Design(layer_of(layer), K, networks, coordinates, observed, method=method), seed, number
    )
    numbers: dict[str, Any] = {f"{name}_rank": rank for name, rank in found.ranks.items()}
    for name, hits in found.covered.items():
        numbers |= {f"{name}_covered_{level}": hit for level, hit in zip(calibration.LEVELS, hits, strict=True)}
    return numbers | {"converged": found.converged} | {f"{name}_truth": x for name, x in found.truth.items()}


def replicates_of(results: Any) -> list[Any]:
    """Replicates of a calibration from the results of a sweep over their numbers."""
    from hierattn.inference.calibration import LEVELS, PARAMETERS, Replicate

    found, ranks = [], [name for name in results if str(name).endswith("_rank")]
    for k in range(results.sizes["number"]):
        one = results.isel(number=k)
        if said := one["message"].item():
            raise InputError(f"replicate {k}: {said}")
        covered = {name: [bool(one[f"{name}_covered_{level}"]) for level in LEVELS] for name in PARAMETERS}
        truth = {name: one[f"{name}_truth"].item() for name in PARAMETERS}
        found.append(
            Replicate({str(name)[: -len("_rank")]: int(one[name]) for name in ranks}, covered, bool(one["converged"]), truth)
        )
    return found


BLOCKS = tuple(inspect.signature(equal_blocks).parameters)
FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "law": law,
    "compare": compare,
    "depth": depth,
    "fit": fit,
    "diagnose": diagnose,
    "replicate": replicate,
}
FURTHER = {law: tuple(LAYER), compare: tuple(LAYER), replicate: tuple(LAYER), depth: BLOCKS}  # options behind **
