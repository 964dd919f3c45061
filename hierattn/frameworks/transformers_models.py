"""Hugging Face Transformers: attention layers known by the names of their linear maps, and small models built from a config.

Layers are read without importing transformers: whoever has a model has it already.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from hierattn.base.errors import InputError, unusable
from hierattn.frameworks.runs import BY_HAND, Linear, Run, mask_and_bias
from hierattn.frameworks.torch_hooks import Call, Reading, array

LAYOUTS = (  # where the maps q, k, v and o of a layer are; packed ones have one name
    ("q_proj", "k_proj", "v_proj", "o_proj"),  # Llama, Mistral, Qwen, Gemma
    ("q_proj", "k_proj", "v_proj", "out_proj"),  # BART, OPT, Whisper, CLIP
    ("q", "k", "v", "o"),  # T5
    ("self.query", "self.key", "self.value", "output.dense"),  # BERT, RoBERTa
    ("q_attn", "c_attn", "c_attn", "c_proj"),  # GPT-2's cross-attention
    ("c_attn", "c_attn", "c_attn", "c_proj"),  # GPT-2
)
HEADS = ("num_heads", "n_heads", "num_attention_heads", "encoder_attention_heads")
MODELS = ("gpt2", "bert", "llama", "t5")


def recognise(module: nn.Module) -> Reading | None:
    """How to read a layer that has all maps of a layout; None for any other module."""
    for layout in LAYOUTS:
        maps = [_part(module, name) for name in layout]
        if all(getattr(linear, "weight", None) is not None and linear.weight.dim() == 2 for linear in maps):
            watched = dict(zip(("q", "k", "v", "o"), maps, strict=True)) | {"layer": module}
            return Reading(watched, partial(_read, module, watched))
    return None


def _read(module: nn.Module, watched: dict[str, nn.Module], calls: dict[str, Call]) -> Run:
    """What the calls of a layer and of its maps say."""
    name, inner = type(module).__name__, getattr(module, "self", module)
    X, X_q = array(calls["k"].input), array(calls["q"].input)
    crossed = calls["k"].input.shape != calls["q"].input.shape or not np.array_equal(X, X_q)
    (batch, q, _), k = X_q.shape, X.shape[1]
    heads = _heads(inner, name)
    rotary, turned = _rotary(calls["layer"].arguments.get("position_embeddings"))
    maps = _maps(watched)
    head_dim = maps["q"].W.shape[1] // heads
    factor = float(getattr(inner, "scaling", head_dim**-0.5)) * turned
    allowed, bias = mask_and_bias(_added(inner, calls["layer"], crossed, q, k), batch, q, k, name)
    if rotary is not None and 2 * len(rotary) != head_dim:
        raise unusable(name, f"{head_dim} coordinates turned by rotary embeddings", 2 * len(rotary), BY_HAND)
    y, initialisers = array(calls["o"].output), _initialisers(module, maps, heads)
    return Run(X_q if crossed else X, X, y, maps, heads, factor, allowed, bias, rotary, initialisers)


def _maps(watched: dict[str, nn.Module]) -> dict[str, Linear]:
    """The four maps; a packed one is cut into equal parts, in the order q, k, v."""
    maps = {}
    for name in "qkvo":
        same = [other for other in "qkvo" if watched[other] is watched[name]]
        linear = watched[name]
        W = array(linear.weight) if type(linear).__name__ == "Conv1D" else array(linear.weight).T
        b = None if linear.bias is None else array(linear.bias)
        i = same.index(name)
        maps[name] = Linear(np.split(W, len(same), axis=1)[i], None if b is None else np.split(b, len(same))[i])
    return maps


def _heads(module: nn.Module, name: str) -> int:
    for owner in (module, getattr(module, "config", None)):
        for word in HEADS:
            if isinstance(getattr(owner, word, None), int):
                return int(getattr(owner, word))
    raise unusable(name, f"its number of heads as one of {', '.join(HEADS)}", "none of them")


def _rotary(positions: Any) -> tuple[np.ndarray | None, float]:
    """Frequencies, and the factor of scores, from cos and sin (batch, token, 2 x frequency) of the angles."""
    if positions is None:
        return None, 1.0
    cos, sin = (array(x).astype(float)[0] for x in positions)
    size = float(np.sqrt(cos[0] ** 2 + sin[0] ** 2).mean())
    turns = (cos + 1j * sin)[:, : cos.shape[1] // 2]
    return np.angle(turns[min(1, len(turns) - 1)] * turns[0].conj()), size**2


def _added(module: nn.Module, call: Call, crossed: bool, q: int, k: int) -> np.ndarray:
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


def _initialisers(module: nn.Module, maps: dict[str, Linear], heads: int) -> dict[str, tuple[float, ...]]:
    """Entry variances by Hugging Face's own initialisers: initializer_range, less for c_proj; T5 has its own."""
    config: Any = getattr(getattr(module, "self", module), "config", None)
    n, inner = maps["q"].W.shape
    if hasattr(module, "has_relative_attention_bias"):
        square = float(config.initializer_factor) ** 2
        return {"q": (square * heads / (n * inner),), "k": (square / n,), "v": (square / n,), "o": (square / inner,)}
    square = float(getattr(config, "initializer_range", 0.0) or 0.0) ** 2
    depth = int(getattr(config, "num_hidden_layers", 1))
    return dict.fromkeys("qkv", (square,)) | {"o": (square, square / (2 * depth))} if square else {}


def build(
    name: str, layers: int, width: int, heads: int, tokens: int, key_value_heads: int | None = None
) -> tuple[Callable[[], Any], dict[str, np.ndarray]]:
    """A function that makes a model of random weights from a config, with nothing downloaded, and inputs: different tokens.

    The vocabulary has just these tokens; embeddings, and with them the inputs of the layer, are drawn anew for every network.
    """
    try:
        import transformers
    except ModuleNotFoundError:
        raise InputError("--model: expected the package transformers, got none; pip install 'hierattn[frameworks]'") from None
    if name not in MODELS:
        raise unusable("--model", "one of " + ", ".join(MODELS), repr(name))
    if width % heads:
        raise unusable("--width", f"a multiple of heads = {heads}", width)
    if key_value_heads is not None and name != "llama":
        raise unusable("--key-value-heads", "nothing but with llama", key_value_heads, "leave it out")
    size: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    size |= {"vocab_size": max(tokens, 2), "max_position_embeddings": tokens}
    size |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    if name == "t5":
        size = {"d_model": width, "d_kv": width // heads, "d_ff": 4 * width, "num_layers": layers, "num_heads": heads}
        size |= {"vocab_size": max(tokens, 2)}
    elif name == "llama":
        size |= {"intermediate_size": 4 * width, "num_key_value_heads": key_value_heads or heads}
    elif name == "bert":
        size |= {"intermediate_size": 4 * width}
    config = transformers.AutoConfig.for_model(name, **size)
    ids = np.arange(tokens)[None]
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if name == "t5" else {})
    return lambda: transformers.AutoModel.from_config(config, attn_implementation="eager"), inputs


def _part(module: nn.Module, name: str) -> Any:
    for word in name.split("."):
        module = getattr(module, word, None)  # type: ignore[assignment]
    return module
