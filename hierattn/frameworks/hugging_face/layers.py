"""Attention layers of Hugging Face's families, known by the names of their parts: linear maps, norms, sinks.

What a family does beyond that is read off the attributes that the library itself reads, `scaling` and `attn_logit_softcapping`,
and off the mask and angles that the layer is called with. Layers are read without importing transformers: whoever has a model
has it already.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from hierattn.base.errors import unusable
from hierattn.frameworks.hugging_face.initialisers import initialisers
from hierattn.frameworks.runs import Linear, Run, mask_and_bias
from hierattn.frameworks.torch_hooks import Call, Reading, array
from hierattn.frameworks.torch_norms import norms_of, of_both


class Layout(NamedTuple):
    """Where the maps of a layer are.

    Those of one name are packed in one matrix: queries of all heads, then their keys and values, or all three head by head.
    """

    q: str
    k: str
    v: str
    o: str
    head_by_head: bool = False


LAYOUTS = (
    Layout("q_proj", "k_proj", "v_proj", "o_proj"),  # Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss, ViT
    Layout("q_proj", "k_proj", "v_proj", "out_proj"),  # BART, OPT, Whisper, CLIP
    Layout("q", "k", "v", "o"),  # T5
    Layout("self.query", "self.key", "self.value", "output.dense"),  # BERT, RoBERTa
    Layout("q_attn", "c_attn", "c_attn", "c_proj"),  # GPT-2's cross-attention
    Layout("c_attn", "c_attn", "c_attn", "c_proj"),  # GPT-2
    Layout("qkv_proj", "qkv_proj", "qkv_proj", "o_proj"),  # Phi-3
    Layout("Wqkv", "Wqkv", "Wqkv", "Wo"),  # ModernBERT
    Layout("query_key_value", "query_key_value", "query_key_value", "dense", head_by_head=True),  # GPT-NeoX
)
NORMS = (("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"))
HEADS = ("num_heads", "n_heads", "num_attention_heads", "encoder_attention_heads")


def recognise(module: nn.Module) -> Reading | None:
    """How to read a layer that has all maps of a layout; None for any other module."""
    for layout in LAYOUTS:
        maps = {name: _part(module, getattr(layout, name)) for name in "qkvo"}
        if all(getattr(linear, "weight", None) is not None and linear.weight.dim() == 2 for linear in maps.values()):
            norms = _norms(module)
            return Reading(maps | norms | {"layer": module}, partial(_read, module, layout, maps, norms))
    return None


def _read(
    module: nn.Module, layout: Layout, parts: dict[str, nn.Module], normed: dict[str, nn.Module], calls: dict[str, Call]
) -> Run:
    """What the calls of a layer and of its parts say."""
    name, inner = type(module).__name__, getattr(module, "self", module)
    X, X_q = array(calls["k"].input), array(calls["q"].input)
    crossed = calls["k"].input.shape != calls["q"].input.shape or not np.array_equal(X, X_q)
    (batch, q, _), k = X_q.shape, X.shape[1]
    heads = _heads(inner, name)
    maps = _maps(parts, layout, heads)
    head_dim = maps["q"].W.shape[1] // heads
    found = norms_of(normed, calls, name)
    norms = of_both(found.get("q_norm"), found.get("k_norm"), heads, maps["k"].W.shape[1] // head_dim, head_dim, name)
    rotary, turned = rotary_of(calls["layer"].arguments.get("position_embeddings"))
    factor = float(getattr(inner, "scaling", head_dim**-0.5)) * turned
    allowed, bias = mask_and_bias(added_by_mask(inner, calls["layer"], crossed, q, k), batch, q, k, name)
    cap, sinks = getattr(inner, "attn_logit_softcapping", None), getattr(inner, "sinks", None)
    return Run(
        X_q if crossed else X,
        X,
        array(calls["o"].output),
        maps,
        heads,
        factor,
        allowed,
        bias,
        rotary,
        norms,
        cap=None if cap is None else float(cap),
        sinks=None if sinks is None else array(sinks),
        initialisers=initialisers(module, maps, heads),
    )


def _norms(module: nn.Module) -> dict[str, nn.Module]:
    """Norms of queries and keys, those that are there."""
    for names in NORMS:
        parts = {key: _part(module, name) for key, name in zip(("q_norm", "k_norm"), names, strict=True)}
        there = {key: part for key, part in parts.items() if isinstance(part, nn.Module) and not isinstance(part, nn.Identity)}
        if there:
            return there
    return {}


def _maps(parts: dict[str, nn.Module], layout: Layout, heads: int) -> dict[str, Linear]:
    """The four maps; a packed one is cut into those of queries, keys and values."""
    whole = {name: linear_of(parts[name]) for name in "qkvo"}
    head_dim = whole["o"].W.shape[0] // heads
    maps = {}
    for name, (W, b) in whole.items():
        same = [other for other in "qkvo" if parts[other] is parts[name]]
        columns = _columns(same, W.shape[1], heads, head_dim, layout.head_by_head)[name]
        maps[name] = Linear(W[:, columns], None if b is None else b[columns])
    return maps


def _columns(packed: list[str], size: int, heads: int, head_dim: int, head_by_head: bool) -> dict[str, np.ndarray]:
    """Which columns of a matrix are of which map: those of queries are of all heads, the others' may be of fewer."""
    every = np.arange(size)
    if len(packed) == 1:
        return {packed[0]: every}
    if head_by_head:
        parts = np.moveaxis(every.reshape(-1, len(packed), size // heads // len(packed)), 1, 0)
        return {name: part.ravel() for name, part in zip(packed, parts, strict=True)}
    queries = heads * head_dim if "q" in packed else 0
    sizes = [queries] * ("q" in packed) + [(size - queries) // 2] * 2
    return dict(zip(packed, np.split(every, np.cumsum(sizes)[:-1]), strict=True))


def linear_of(module: Any) -> Linear:
    """A module's map."""
    W = array(module.weight) if type(module).__name__ == "Conv1D" else array(module.weight).T
    return Linear(W, None if module.bias is None else array(module.bias))


def _heads(module: nn.Module, name: str) -> int:
    for owner in (module, getattr(module, "config", None)):
        for word in HEADS:
            if isinstance(getattr(owner, word, None), int):
                return int(getattr(owner, word))
    raise unusable(name, f"its number of heads as one of {', '.join(HEADS)}", "none of them")


def rotary_of(positions: Any) -> tuple[np.ndarray | None, float]:
    """Frequencies, and the factor of scores, from cos and sin of the angles, (batch, token, frequency), or these twice."""
    if positions is None:
        return None, 1.0
    cos, sin = (array(x).astype(float)[0] for x in positions)
    size = float(np.sqrt(cos[0] ** 2 + sin[0] ** 2).mean())
    turns = cos + 1j * sin
    half = turns.shape[1] // 2
    if 2 * half == turns.shape[1] and np.array_equal(turns[:, :half], turns[:, half:]):
        turns = turns[:, :half]
    return np.angle(turns[min(1, len(turns) - 1)] * turns[0].conj()), size**2


def added_by_mask(module: nn.Module, call: Call, crossed: bool, q: int, k: int) -> np.ndarray:
    """What mask and position bias add to the scores; in boolean masks True allows."""
    names = ("encoder_attention_mask", "attention_mask", "mask") if crossed else ("attention_mask", "mask")
    mask = next((call.arguments[name] for name in names if call.arguments.get(name) is not None), None)
    added = np.zeros((1, 1, q, k))
    if mask is not None:
        given = array(mask)
        added = added + (np.where(given, 0.0, -np.inf) if given.dtype == bool else given)
    elif not crossed and getattr(module, "is_causal", False):
        added = added + np.where(np.tri(q, dtype=bool), 0.0, -np.inf)
    bias = call.returned[1] if isinstance(call.returned, tuple) and len(call.returned) == 3 else None
    if bias is not None and hasattr(module, "has_relative_attention_bias"):  # T5 returns it
        added = added + array(bias)
    return added


def _part(module: nn.Module, name: str) -> Any:
    for word in name.split("."):
        module = getattr(module, word, None)  # type: ignore[assignment]
    return module
