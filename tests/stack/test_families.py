"""Configs read as plain data: what a config.json says and leaves out, and what is refused in one line."""

import json

import numpy as np
import pytest

from hierattn.base.errors import InputError
from hierattn.stack.blocks import Norm
from hierattn.stack.embedding import Embedding
from hierattn.stack.families import FAMILIES, stack_from_config

IDS = [5, 9, 5]
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}


def read(**fields):
    """The stack of a config given as a dict."""
    return stack_from_config(fields, IDS)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "vit"])
def test_what_a_config_leaves_out_is_the_familys(family):
    stack = read(model_type=family)
    assert stack.tokens == 3
    assert stack.width in (768, 2304, 3072, 4096, 6144)
    assert len(stack.blocks) in (12, 26, 32, 44)


def test_gpt2_divides_what_ends_a_branch():
    block = read(model_type="gpt2", n_embd=64, n_layer=8, n_head=4).blocks[0]
    assert block.attention.head_dim == 16
    assert np.isclose(block.attention.sigma_q, 0.02 * 8)
    assert np.isclose(block.attention.sigma_o, 0.02 / 4 * 8)
    assert np.isclose(block.mlp.sigma_out, 0.02 / 4 * 16)
    assert block.mlp.width == 256


def test_rotary_settings_under_old_and_new_names():
    new = {"rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5}}
    old = {"rotary_emb_base": 500.0, "rotary_pct": 0.5}
    found = [read(model_type="gpt_neox", **SMALL, **names).blocks[0].attention.rotary for names in (new, old)]
    assert np.array_equal(*found)
    assert np.allclose(found[0], [1.0, 0.0])
    assert np.allclose(read(model_type="llama", **SMALL, rope_theta=100.0).blocks[0].attention.rotary, [1.0, 0.1])


def test_llama3_slows_long_waves_alone():
    told = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    told |= {"original_max_position_embeddings": 8192, "rope_theta": 5e5}
    config = SMALL | {"model_type": "llama", "head_dim": 128}
    slowed = stack_from_config(config | {"rope_scaling": told}, IDS).blocks[0].attention.rotary
    plain = stack_from_config(config | {"rope_theta": 5e5}, IDS).blocks[0].attention.rotary
    waves = 8192 * plain / (2 * np.pi)
    assert np.allclose(slowed[waves >= 4], plain[waves >= 4])
    assert np.allclose(slowed[waves <= 1], plain[waves <= 1] / 8)
    assert np.all(np.diff(slowed) < 0)


def test_windows_and_layer_types():
    stack = read(model_type="mistral", **SMALL, num_key_value_heads=2, sliding_window=2)
    assert np.array_equal(stack.blocks[0].attention.mask, [[True, False, False], [True, True, False], [False, True, True]])
    assert read(model_type="mistral", **SMALL, num_key_value_heads=2).blocks[0].attention.mask == "causal"
    kinds = {"use_sliding_window": True, "sliding_window": 2, "layer_types": ["full_attention", "sliding_attention"]}
    first, second = read(model_type="qwen2", **SMALL, **kinds).blocks
    assert isinstance(first.attention.mask, str)
    assert not isinstance(second.attention.mask, str)


def test_windows_of_every_layer_but_some():
    """Gemma 2 every second, Gemma 3 all but every sixth, with other rotary settings, under old names and new ones."""
    small = SMALL | {"num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 6, "sliding_window": 2}
    masked = [isinstance(b.attention.mask, str) for b in read(model_type="gemma2", **small).blocks]
    assert masked == [False, True] * 3
    old = read(model_type="gemma3_text", **small, sliding_window_pattern=3, rope_theta=1e4, rope_local_base_freq=100.0)
    new = {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 100.0}}
    kinds = (["sliding_attention"] * 2 + ["full_attention"]) * 2
    new = read(model_type="gemma3_text", **small, layer_types=kinds, rope_parameters=new)
    for stack in (old, new):
        assert [isinstance(b.attention.mask, str) for b in stack.blocks] == [False, False, True] * 2
        assert np.allclose(stack.blocks[0].attention.rotary, [1.0, 0.1])
        assert np.allclose(stack.blocks[2].attention.rotary, [1.0, 0.01])
    late = read(model_type="qwen3", **small, use_sliding_window=True, max_window_layers=4)
    assert [isinstance(b.attention.mask, str) for b in late.blocks] == [True] * 4 + [False] * 2


def test_scores_of_gemma_and_its_embedding():
    """Scaled by another number than head_dim, capped or normed; embeddings by the width."""
    small = SMALL | {"num_key_value_heads": 2, "head_dim": 4, "query_pre_attn_scalar": 16}
    two, three = (read(model_type=name, **small).blocks[0].attention for name in ("gemma2", "gemma3_text"))
    assert np.isclose(two.score_scale[0], 0.5 * 0.02**2 * 16)
    assert (two.cap, two.qk_norm) == (50.0, None)
    assert (three.qk_gain, three.qk_norm, three.cap) == (0.5, "rms", None)
    assert np.isclose(read(model_type="gemma2", **small).embedding.kernel[0, 0], 0.02**2 * 16)
    olmo = read(model_type="olmo2", **SMALL)
    assert (olmo.blocks[0].placement, olmo.blocks[0].attention.qk_norm) == ("branch", "rms_all")


def test_a_padding_token_of_bert_is_zero():
    kernel = stack_from_config({"model_type": "bert", **SMALL}, [0, 7]).embedding.kernel
    assert np.allclose(kernel, 0.02**2 * np.array([[2, 1], [1, 3]]))


def test_vision_models_take_an_embedding():
    embedding = Embedding.independent(4, norm=Norm())
    assert stack_from_config({"model_type": "vit", **SMALL}, embedding=embedding).tokens == 4


def test_a_file_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **SMALL}))
    assert repr(stack_from_config(path, IDS)) == "Stack(width=16, blocks=2, tokens=3)"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"model_type": "gemma3"}, "give the text_config, of model_type gemma3_text"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": "x"}, "query_pre_attn_scalar: expected a number"),
        ({"model_type": "mixtral"}, "does not cover experts"),
        ({"model_type": ["llama"]}, "config: model_type: expected one of"),
        ({}, "config: model_type: expected one of"),
        ({"model_type": "llama", "hidden_size": 10**12}, "config: hidden_size: expected a whole number from 1 to"),
        ({"model_type": "llama", "hidden_size": 33}, "config: hidden_size: expected a multiple of the 32 heads"),
        ({"model_type": "llama", "num_key_value_heads": 5}, "num_key_value_heads: expected a divisor of the 32 heads"),
        ({"model_type": "llama", "rms_norm_eps": "small"}, "rms_norm_eps: expected a number"),
        ({"model_type": "llama", "hidden_act": "relu6"}, "hidden_act: expected one of gelu"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}}, "rope_type default, linear or llama3"),
        ({"model_type": "llama", "rope_scaling": [[[1]]]}, "rope_parameters: expected names and numbers"),
        ({"model_type": "mistral", "sliding_window": -1}, "sliding_window: expected a positive whole number"),
        ({"model_type": "qwen2", "use_sliding_window": 1}, "use_sliding_window: expected true or false"),
        ({"model_type": "qwen2", "layer_types": ["linear_attention"] * 32}, "layer_types: expected 32 of"),
        ({"model_type": "vit"}, "embedding: expected an Embedding of patches"),
    ],
)
def test_mistakes_are_one_line(told, expected):
    with pytest.raises(InputError, match=expected) as wrong:
        stack_from_config(told, IDS)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "[" * 100_000])
def test_files_that_are_no_configs(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"config\.json: expected"):
        stack_from_config(path, IDS)
    with pytest.raises(InputError, match="readable"):
        stack_from_config(tmp_path / "none.json", IDS)


@pytest.mark.parametrize("ids", [[0.5], [[1]], [], [-1], [32000], None])
def test_token_ids_are_checked(ids):
    with pytest.raises(InputError, match="token_ids: expected"):
        stack_from_config({"model_type": "llama"}, ids)
