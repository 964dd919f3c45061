"""Families of Hugging Face models at initialisation, each a function from its config to a stack.

Weights are N(0, initializer_range^2), r below, and biases 0, whatever their fan-in: sigma = r sqrt(fan_in).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer.architecture import Architecture
from hierattn.stack.blocks import MLP, Block, Norm
from hierattn.stack.config import Config, read_fields, token_ids
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
    build, defaults = FAMILIES[family]
    return build(Config(fields, defaults, where), ids, embedding)


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
        attention = attention.replace(sigma_q=attention.sigma_q * scale / slower)
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


def llama(c: Config, ids: Any, embedding: Embedding | None) -> Stack:
    """RMSNorm, rotary embeddings, grouped queries, a gated MLP; Mistral's, Qwen 2's and Phi 3's windows."""
    n, layers, heads, r = _sizes(c)
    head_dim = c.count("head_dim", "head_dim") if c.fields.get("head_dim") else _share(c, n, heads)
    groups, norm = c.count("num_key_value_heads", "heads", heads), Norm(eps=c.number("rms_norm_eps"))
    if heads % groups:
        raise c.error("num_key_value_heads", f"a divisor of the {heads} heads")
    embedding = embedding or _embedded(c, ids)
    window = c.fields.get("sliding_window")
    if "use_sliding_window" in c.fields and not c.flag("use_sliding_window"):
        window = None
    common: dict[str, Any] = {"mlp": _perceptron(c, n, r, gated=True), "norm": norm}
    rotary = c.rotary(head_dim)
    masks = {w: c.mask(embedding.tokens, w) for w in {*c.windows(layers, window)}}
    kinds = {
        w: Block(attention=_attention(n, heads, head_dim, r, r, groups, mask=mask, rotary=rotary), **common)
        for w, mask in masks.items()
    }
    blocks = tuple(kinds[w] for w in c.windows(layers, window))
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
    c: Config, ids: Any, position: float = 0.0, types: float = 0.0, norm: Norm | None = None, zero: Any = None
) -> Embedding:
    """Rows of the model's tables; that of the padding token is zero where the family says so."""
    ids, variance = token_ids(ids, c.count("vocab_size", "hidden units")), _range(c) ** 2
    K = variance * (ids[:, None] == ids) * (ids != zero) + position * np.eye(len(ids)) + types
    return Embedding(kernel=K, norm=norm)


def _unembedded(c: Config) -> Unembedding | None:
    """Of models that do not use the table of tokens again."""
    if c.flag("tie_word_embeddings"):
        return None
    return Unembedding(vocabulary=c.count("vocab_size", "hidden units"), variance=_range(c) ** 2)


Build = Callable[[Config, Any, Embedding | None], Stack]
LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
}
BERT = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
FAMILIES: dict[str, tuple[Build, dict[str, Any]]] = {
    "gpt2": (
        gpt2,
        {
            "vocab_size": 50257,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "initializer_range": 0.02,
            "scale_attn_weights": True,
            "tie_word_embeddings": True,
        },
    ),
    "gpt_neox": (
        gpt_neox,
        {
            "vocab_size": 50432,
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "hidden_act": "gelu",
            "initializer_range": 0.02,
            "layer_norm_eps": 1e-5,
            "use_parallel_residual": True,
            "partial_rotary_factor": 0.25,
        },
    ),
    "llama": (llama, LLAMA),
    "mistral": (llama, LLAMA | {"intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096}),
    "qwen2": (llama, LLAMA | {"vocab_size": 151936, "intermediate_size": 22016, "use_sliding_window": False}),
    "phi3": (llama, LLAMA | {"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "rms_norm_eps": 1e-5}),
    "bert": (bert, BERT | {"pad_token_id": 0}),
    "vit": (vit, BERT),
}
NORMED = "norms of queries and keys yet"
NOT_COVERED = {
    "qwen3": NORMED,
    "gemma2": "soft caps and embeddings scaled by the width yet",
    "gemma3": NORMED,
    "gemma3_text": NORMED,
    "olmo2": NORMED,
    "mixtral": "experts",
    "qwen2_moe": "experts",
    "gpt_oss": "experts and sinks",
    "deepseek_v3": "experts and latent attention",
    "mamba": "recurrent blocks",
    "jamba": "recurrent blocks and experts",
    "recurrent_gemma": "recurrent blocks",
}
