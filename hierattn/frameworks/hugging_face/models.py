"""Small models of Hugging Face's families, built from a config: random weights, nothing downloaded."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hierattn.base.errors import InputError, unusable

INITIALIZERS = ("initializer_range", "init_std", "initializer_factor")  # what configs call the size of fresh weights


class Size(NamedTuple):
    """What is asked of a model. Layers with a window see half of the tokens."""

    layers: int
    width: int
    heads: int
    tokens: int

    @property
    def window(self) -> int:
        """Tokens that a sliding window holds."""
        return max(self.tokens // 2, 1)

    @property
    def usual(self) -> dict[str, Any]:
        """Settings by the names that most configs have."""
        names = ("pad_token_id", "bos_token_id", "eos_token_id")  # every token is a word like the others
        words = {"vocab_size": max(self.tokens, 2), "max_position_embeddings": self.tokens} | dict.fromkeys(names)
        return words | self.plain

    @property
    def plain(self) -> dict[str, Any]:
        """The same of a model without words."""
        return {
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.width,
        }


def _gpt2(size: Size) -> dict[str, Any]:
    return {name: value for name, value in size.usual.items() if name != "intermediate_size"}


def _with_head_dim(size: Size) -> dict[str, Any]:
    """Configs whose heads do not fill the width by themselves."""
    return size.usual | {"head_dim": size.width // size.heads}


def _gemma(size: Size) -> dict[str, Any]:
    """With scores divided by sqrt(head_dim); every other layer has a window."""
    kinds = [("sliding_attention", "full_attention")[i % 2] for i in range(size.layers)]
    window = {"sliding_window": size.window, "layer_types": kinds}
    return _with_head_dim(size) | window | {"query_pre_attn_scalar": size.width // size.heads}


def _gpt_oss(size: Size) -> dict[str, Any]:
    """Of its experts only two are left; positions are as many as its frequencies are made for."""
    own = {"sliding_window": size.window, "num_local_experts": 2, "num_experts_per_tok": 1}
    return {name: value for name, value in _with_head_dim(size).items() if name != "max_position_embeddings"} | own


def _modernbert(size: Size) -> dict[str, Any]:
    """local_attention counts both sides, and a token itself is not counted."""
    return size.usual | {"local_attention": 2 * (size.window - 1), "cls_token_id": None, "sep_token_id": None}


def _deepseek(size: Size) -> dict[str, Any]:
    """Latents of half the width, a turned part of half a head, no experts."""
    dim = size.width // size.heads
    latents = {"q_lora_rank": size.width // 2, "kv_lora_rank": size.width // 2}
    dims = {"qk_nope_head_dim": dim, "qk_rope_head_dim": 2 * max(dim // 4, 1), "v_head_dim": dim}
    return size.usual | latents | dims | {"first_k_dense_replace": size.layers}


def _t5(size: Size) -> dict[str, Any]:
    parts = {"d_model": size.width, "d_kv": size.width // size.heads, "d_ff": 4 * size.width}
    return parts | {"num_layers": size.layers, "num_heads": size.heads, "vocab_size": max(size.tokens, 2)}


def _vit(size: Size) -> dict[str, Any]:
    """A row of patches; the first token stands for the whole image."""
    if size.tokens < 2:
        raise unusable("--tokens", "at least 2 for vit, a patch and the image", size.tokens)
    return size.plain | {"patch_size": 4, "image_size": (4, 4 * (size.tokens - 1)), "num_channels": 3}


def _whisper(size: Size) -> dict[str, Any]:
    """Every token of the encoder is two frames of sound."""
    both = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in _whisper_part(size).items()}
    words = {"vocab_size": max(size.tokens, 2)} | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    places = {"max_source_positions": size.tokens, "max_target_positions": size.tokens, "decoder_start_token_id": 0}
    return both | words | places | {"d_model": size.width, "num_mel_bins": 16}


def _whisper_part(size: Size) -> dict[str, int]:
    return {"layers": size.layers, "attention_heads": size.heads, "ffn_dim": 4 * size.width}


def _words(size: Size) -> dict[str, np.ndarray]:
    """All different."""
    return {"input_ids": np.arange(size.tokens)[None]}


def _both(size: Size) -> dict[str, np.ndarray]:
    ids = np.arange(size.tokens)[None]
    return {"input_ids": ids, "decoder_input_ids": ids}


def _image(size: Size) -> dict[str, np.ndarray]:
    """Noise, the same whenever it is asked for."""
    return {"pixel_values": np.random.default_rng(0).normal(size=(1, 3, 4, 4 * (size.tokens - 1))).astype(np.float32)}


def _sound(size: Size) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0).normal(size=(1, 16, 2 * size.tokens)).astype(np.float32)
    return {"input_features": noise, "decoder_input_ids": np.arange(size.tokens)[None]}


class Family(NamedTuple):
    """How a small model of a family is made: settings of its config, and inputs."""

    settings: Callable[[Size], dict[str, Any]]
    inputs: Callable[[Size], dict[str, np.ndarray]] = _words


FAMILIES = {
    "gpt2": Family(_gpt2),
    "gpt_neox": Family(lambda size: size.usual),
    "llama": Family(lambda size: size.usual),
    "mistral": Family(lambda size: _with_head_dim(size) | {"sliding_window": size.window}),
    "qwen2": Family(lambda size: size.usual),
    "qwen3": Family(_with_head_dim),
    "gemma2": Family(_gemma),
    "gemma3_text": Family(_gemma),
    "olmo2": Family(lambda size: size.usual),
    "phi3": Family(lambda size: size.usual),
    "gpt_oss": Family(_gpt_oss),
    "deepseek_v3": Family(_deepseek),
    "bert": Family(lambda size: size.usual),
    "modernbert": Family(_modernbert),
    "t5": Family(_t5, _both),
    "vit": Family(_vit, _image),
    "whisper": Family(_whisper, _sound),
}
MODELS = tuple(FAMILIES)


def build(
    name: str,
    layers: int,
    width: int,
    heads: int,
    tokens: int,
    key_value_heads: int | None = None,
    initializer_range: float | None = None,
) -> tuple[Callable[[], Any], dict[str, np.ndarray]]:
    """A function that makes a model of random weights from a config, with nothing downloaded, and inputs: different tokens.

    The vocabulary has just these tokens; embeddings, and with them the inputs of the layer, are drawn anew for every network.

    - initializer_range: size of fresh weights by the family's own rule (`INITIALIZERS`), instead of its default
    """
    try:
        import transformers
    except ModuleNotFoundError:
        raise InputError("--model: expected the package transformers, got none; pip install 'hierattn[frameworks]'") from None
    if name not in MODELS:
        raise unusable("--model", "one of " + ", ".join(MODELS), repr(name))
    if width % heads:
        raise unusable("--width", f"a multiple of heads = {heads}", width)
    kind, size = transformers.CONFIG_MAPPING[name], Size(layers, width, heads, tokens)
    settings = FAMILIES[name].settings(size)
    if hasattr(kind(), "num_key_value_heads"):
        settings["num_key_value_heads"] = key_value_heads or heads
    elif key_value_heads is not None:
        raise unusable(
            "--key-value-heads", f"nothing with {name}, where every head has its own", key_value_heads, "leave it out"
        )
    if initializer_range is not None:
        settings[next(word for word in INITIALIZERS if hasattr(kind, word))] = initializer_range
    config = kind(**settings)
    return lambda: transformers.AutoModel.from_config(config, attn_implementation="eager"), FAMILIES[name].inputs(size)
