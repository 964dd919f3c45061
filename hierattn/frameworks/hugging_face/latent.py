"""Latent attention of Hugging Face's DeepSeek models, known by the names of its parts."""

from functools import partial
from typing import Any

import numpy as np
from torch import nn

from hierattn.base.errors import unusable
from hierattn.frameworks.hugging_face.layers import added_by_mask, linear_of, rotary_of
from hierattn.frameworks.latent_runs import LatentRun
from hierattn.frameworks.runs import BY_HAND, ROUNDING, Linear, mask_and_bias
from hierattn.frameworks.torch_hooks import Call, Reading, array
from hierattn.frameworks.torch_norms import norms_of

KEYS = {"into": "kv_a_proj_with_mqa", "c_norm": "kv_a_layernorm", "kv": "kv_b_proj", "o": "o_proj"}
QUERIES = {"d": "q_a_proj", "d_norm": "q_a_layernorm", "q": "q_b_proj"}  # through a latent of their own
PLAIN = {"q": "q_proj"}


def recognise(module: nn.Module) -> Reading | None:
    """How to read a layer that has all these parts; None for any other module."""
    for names in (KEYS | QUERIES, KEYS | PLAIN):
        parts = {key: getattr(module, name, None) for key, name in names.items()}
        if all(isinstance(part, nn.Module) for part in parts.values()):
            return Reading(parts | {"layer": module}, partial(_read, module, parts))
    return None


def _read(module: Any, parts: dict[str, Any], calls: dict[str, Call]) -> LatentRun:
    """What the calls of a layer and of its parts say."""
    name, X = type(module).__name__, array(calls["into"].input)
    found = norms_of({key: part for key, part in parts.items() if key.endswith("norm")}, calls, name)
    norms = {key.removesuffix("_norm"): norm for key, norm in found.items()}
    whole = {key: linear_of(part) for key, part in parts.items() if key not in found}
    r, n_R, n_H, n_V = module.kv_lora_rank, module.qk_rope_head_dim, module.qk_nope_head_dim, module.v_head_dim
    (c, shared), (k, v) = _cut(whole.pop("into"), 1, r, n_R), _cut(whole.pop("kv"), module.num_heads, n_H, n_V)
    maps = whole | {"c": c, "r": shared, "k": k, "v": v}
    if module.config.rope_interleave:
        maps |= {"r": _halves(shared, 1, 0), "q": _halves(maps["q"], module.num_heads, n_H)}
    rotary, size = rotary_of(calls["layer"].arguments.get("position_embeddings"))
    if abs(size - 1) > ROUNDING:
        raise unusable(name, "rotary embeddings that keep lengths", f"some that multiply squares by {size:.4g}", BY_HAND)
    tokens = X.shape[1]
    allowed, _ = mask_and_bias(added_by_mask(module, calls["layer"], False, tokens, tokens), len(X), tokens, tokens, name)
    known = (float(module.config.initializer_range) ** 2,)
    return LatentRun(
        X,
        array(calls["o"].output),
        maps,
        norms,
        module.num_heads,
        (n_H, n_V),
        float(module.scaling),
        allowed,
        np.zeros(0) if rotary is None else rotary,
        dict.fromkeys(maps, known),
    )


def _cut(linear: Linear, heads: int, first: int, second: int) -> tuple[Linear, Linear]:
    """A map whose columns are, head by head, those of two."""
    W, b = linear.W.reshape(len(linear.W), heads, first + second), linear.b
    biases = (None, None) if b is None else tuple(x.ravel() for x in np.split(b.reshape(heads, -1), [first], axis=1))
    parts = np.split(W, [first], axis=2)
    return Linear(parts[0].reshape(len(W), -1), biases[0]), Linear(parts[1].reshape(len(W), -1), biases[1])


def _halves(linear: Linear, heads: int, first: int) -> Linear:
    """Neighbours that are turned together as pairs from two halves: another order of columns from `first` on."""
    W = linear.W.reshape(len(linear.W), heads, -1)
    W = np.concatenate([W[:, :, :first], W[:, :, first::2], W[:, :, first + 1 :: 2]], axis=2)
    return linear._replace(W=W.reshape(len(W), -1))
