"""Families of Hugging Face models at initialisation, each a function from its config to a stack.

Weights are N(0, initializer_range^2), r below, and biases 0, whatever their fan-in: sigma = r sqrt(fan_in).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer.architecture import Architecture
from hierattn.stack.blocks import MLP, Block, Norm
from hierattn.stack.config import SLIDING, Config, read_fields, token_ids
from hierattn.stack.defaults import DEFAULTS, NOT_COVERED
from hierattn.stack.embedding import Embedding, Unembedding
from hierattn.stack.stack import Stack


def stack_from_config(config: Any, ids: Any = None, embedding: Embedding | None = None) -> Stack:
    """The stack that Transformers would build from a config at initialisation.

    - config: a dict, or the path of a config.json
    - ids: token ids, which the model's own embedding makes a stream of
    - embedding: one's own in place of that, as vision models need
    """
    fields, where = read_fields(config)
    family = fields.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        cause = NOT_COVERED.get(family) if isinstance(family, str) else None
        remedy = f"the law does not cover {cause}" if cause else ""
        raise unusable(f"{where}: model_type", "one of " + ", ".join(FAMILIES), repr(family)[:80], remedy)
    if (ids is None) == (embedding is None):
        raise unusable("token_ids", "token ids, or an embedding of your own", "both or neither")
    return FAMILIES[family](Config(fields, DEFAULTS[family], where), ids, embedding)


def gpt2(c: Config, ids: Any, embedding: Embedding | None) -> Stack:
    """Pre-norm; what ends a branch is divided by sqrt(2 layers)."""
    n, layers, heads, r = c.count("n_embd", "width"), c.count("n_layer", "layers"), c.count("n_head", "heads"), _range(c)
    head_dim, norm = _share(c, n, heads), Norm(kind="layer", eps=c.number("layer_norm_epsilon"))
    embedding = embedding or _embedded(c, ids, position=r**2)
    last, m = r / (2 * layers) ** 0.5, c.count("n_inner", "hidden units", 4 * n)
    mlp = MLP(width=m, activation=c.activation("activation_function"), sigma_in=r * n**0.5, sigma_out=last * m**0.5)
    scale = 1.0 if c.flag("scale_attn_weights") else head_dim**0.5

    def block(layer: int) -> Block:
        slower = layer + 1 if c.flag("scale_attn_by_inverse_layer_idx") else 1
        attention = _attention(n, heads, head_dim, r, last, mask="causal")
        attention = attention.with_scores_times(scale / slower)
        return Block(attention=attention, mlp=mlp, norm=norm)

    parts: dict[str, Any] = {"blocks": tuple(map(block, range(layers))), "final_norm": norm, "unembedding": _unembedded(c)}
    return Stack(width=n, embedding=embedding, **parts)


def gpt_neox(c: Config, ids: Any, embedding: Embedding | None) -> Stack:
    """Attention and MLP side by side, a part of the head turned."""
    n, layers, heads, r = _sizes(c)
    head_dim, norm = _share(c, n, heads), Norm(kind="layer", eps=c.number("layer_norm_eps"))
    attention = _attention(n, heads, head_dim, r, r, mask="causal", rotary=c.rotary(head_dim))
    block = Block(
        attention=attention,
        mlp=_perceptron(c, n, r),
        norm=norm,
        placement="parallel" if c.flag("use_parallel_residual") else "pre",
    )
    parts: dict[str, Any] = {"blocks": (block,) * layers, "final_norm": norm, "unembedding": _unembedded(c)}
    return Stack(width=n, embedding=embedding or _embedded(c, ids), **parts)


def llama(
    c: Config, ids: Any, embedding: Embedding | None, placement: str = "pre", qk_norm: str | None = None, scaled: bool = False
) -> Stack:
    """RMSNorm, rotary embeddings, grouped queries, a gated MLP, and the windows of Mistral, Qwen and Phi 3.

    - qk_norm: of queries and keys
    - scaled: scores and embeddings have scales, and scores may be capped, as in Gemma
    """
    n, layers, heads, r = _sizes(c)
    head_dim = c.count("head_dim", "head_dim") if c.fields.get("head_dim") else _share(c, n, heads)
    groups, norm = c.count("num_key_value_heads", "heads", heads), Norm(eps=c.number("rms_norm_eps"))
    if heads % groups:
        raise c.error("num_key_value_heads", f"a divisor of the {heads} heads")
    embedding = embedding or _embedded(c, ids, times=n if scaled else 1)
    window = c.fields.get("sliding_window")
    if "use_sliding_window" in c.fields and not c.flag("use_sliding_window"):
        window = None
    mlp, kinds = _perceptron(c, n, r, gated=True), c.kinds(layers, window)
    plain = _attention(n, heads, head_dim, r, r, groups)
    if qk_norm is not None:
        plain = plain.replace(qk_norm=qk_norm, qk_eps=c.number("rms_norm_eps"))
    if scaled:
        cap = c.fields.get("attn_logit_softcapping")
        plain = plain.replace(cap=None if cap is None else c.number("attn_logit_softcapping"))
        scale = (head_dim / c.number("query_pre_attn_scalar")) ** 0.5
        plain = (
            plain.with_scales(scale * plain.score_scale[0], plain.value_scale[0])
            if qk_norm is None
            else plain.replace(qk_gain=scale)
        )

    def block(kind: str) -> Block:
        mask = c.mask(embedding.tokens, window if kind == SLIDING else None)
        attention = plain.replace(mask=mask, rotary=c.rotary(head_dim, kind))
        return Block(attention=attention, mlp=mlp, norm=norm, placement=placement)

    made = {kind: block(kind) for kind in {*kinds}}
    blocks = tuple(made[kind] for kind in kinds)
    return Stack(width=n, embedding=embedding, blocks=blocks, final_norm=norm, unembedding=_unembedded(c))


def bert(c: Config, ids: Any, embedding: Embedding | None) -> Stack:
    """Post-norm, every token sees every other; words, positions and types are added and normed. One segment."""
    n, layers, heads, r = _sizes(c)
    norm = Norm(kind="layer", eps=c.number("layer_norm_eps"))
    if embedding is None:
        pad = c.fields.get("pad_token_id")
        embedding = _embedded(c, ids, position=r**2, types=r**2, norm=norm, zero=pad)
    block = Block(
        attention=_attention(n, heads, _share(c, n, heads), r, r), mlp=_perceptron(c, n, r), norm=norm, placement="post"
    )
    return Stack(width=n, embedding=embedding, blocks=(block,) * layers)


def vit(c: Config, ids: Any, embedding: Embedding | None) -> Stack:
    """Pre-norm, every patch sees every other. Patches enter by an embedding of the user's own."""
    if embedding is None:
        raise unusable("embedding", "an Embedding of patches", None, "token ids mean nothing to a vision model")
    n, layers, heads, r = _sizes(c)
    norm = Norm(kind="layer", eps=c.number("layer_norm_eps"))
    block = Block(attention=_attention(n, heads, _share(c, n, heads), r, r), mlp=_perceptron(c, n, r), norm=norm)
    return Stack(width=n, embedding=embedding, blocks=(block,) * layers, final_norm=norm)


def _range(c: Config) -> float:
    return c.number("initializer_range")


def _sizes(c: Config) -> tuple[int, int, int, float]:
    """Width, layers, heads, and the weights' standard deviation."""
    layers, heads = c.count("num_hidden_layers", "layers"), c.count("num_attention_heads", "heads")
    return c.count("hidden_size", "width"), layers, heads, _range(c)


def _share(c: Config, n: int, heads: int) -> int:
    """The width of a head where all heads together have the stream's."""
    if n % heads:
        raise c.error("hidden_size" if "hidden_size" in c.fields else "n_embd", f"a multiple of the {heads} heads")
    return n // heads


def _attention(
    n: int, heads: int, head_dim: int, r: float, last: float, groups: int | None = None, mask: Any = None, rotary: Any = None
) -> Architecture:
    scale = r * n**0.5
    return Architecture(
        heads=heads,
        head_dim=head_dim,
        key_value_heads=groups,
        sigma_q=scale,
        sigma_k=scale,
        sigma_v=scale,
        sigma_o=last * (heads * head_dim) ** 0.5,
        mask=mask,
        rotary=rotary,
    )


def _perceptron(c: Config, n: int, r: float, gated: bool = False) -> MLP:
    m = c.count("intermediate_size", "hidden units")
    return MLP(width=m, activation=c.activation("hidden_act"), gated=gated, sigma_in=r * n**0.5, sigma_out=r * m**0.5)


def _embedded(
    c: Config, ids: Any, position: float = 0.0, types: float = 0.0, norm: Norm | None = None, zero: Any = None, times: float = 1
) -> Embedding:
    """Rows of the model's tables, their variance multiplied; that of the padding token is zero where the family says so."""
    ids, variance = token_ids(ids, c.count("vocab_size", "hidden units")), times * _range(c) ** 2
    K = variance * (ids[:, None] == ids) * (ids != zero) + position * np.eye(len(ids)) + types
    return Embedding(kernel=K, norm=norm)


def _unembedded(c: Config) -> Unembedding | None:
    """Of models that do not use the table of tokens again."""
    if c.flag("tie_word_embeddings"):
        return None
    return Unembedding(vocabulary=c.count("vocab_size", "hidden units"), variance=_range(c) ** 2)


FAMILIES: dict[str, Callable[[Config, Any, Embedding | None], Stack]] = {
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "phi3": llama,
    "qwen3": partial(llama, qk_norm="rms"),
    "olmo2": partial(llama, placement="branch", qk_norm="rms_all"),
    "gemma2": partial(llama, placement="sandwich", scaled=True),
    "gemma3_text": partial(llama, placement="sandwich", qk_norm="rms", scaled=True),
    "bert": bert,
    "vit": vit,
}
