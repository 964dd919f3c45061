"""Hugging Face's models, built from a config: hooks show what the modules return, descriptions are those of the configs."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

import hierattn as ha
from hierattn import InputError
from hierattn.command_line.capture import ModelName
from hierattn.diagnostics.reference import draw
from hierattn.diagnostics.subject import of_observations
from hierattn.frameworks import runs, torch_layers
from hierattn.frameworks.capture import capture
from hierattn.frameworks.hugging_face.models import MODELS, build
from tests.statistics import within

SIZE = {"layers": 2, "width": 32, "heads": 4, "tokens": 6}
LAYERS = {name: [f"layers.{i}.self_attn" for i in range(2)] for name in MODELS} | {
    "gpt2": ["h.0.attn", "h.1.attn"],
    "gpt_neox": ["layers.0.attention", "layers.1.attention"],
    "bert": ["encoder.layer.0.attention", "encoder.layer.1.attention"],
    "modernbert": ["layers.0.attn", "layers.1.attn"],
    "vit": ["layers.0.attention", "layers.1.attention"],
    "whisper": [
        *(f"encoder.layers.{i}.self_attn" for i in range(2)),
        *(f"decoder.layers.{i}.{part}" for i in range(2) for part in ("self_attn", "encoder_attn")),
    ],
    "t5": [
        *(f"encoder.block.{i}.layer.0.SelfAttention" for i in range(2)),
        *(f"decoder.block.{i}.layer.{part}" for i in range(2) for part in ("0.SelfAttention", "1.EncDecAttention")),
    ],
}


def test_the_command_line_knows_them_all():
    assert [name.value for name in ModelName] == list(MODELS)


def made(name, **more):
    make, inputs = build(name, **SIZE | more)
    torch.manual_seed(0)
    return make().eval(), inputs


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_found_in_order(name):
    assert torch_layers.layers(*made(name)) == LAYERS[name]


READ = [(name, module) for name in MODELS if name != "deepseek_v3" for module in LAYERS[name]]  # that in test_latent_runs.py


@pytest.mark.parametrize(("name", "module"), READ)
def test_what_is_read_is_what_the_module_returns(name, module):
    """By a hook of our own on the module itself; for BERT, whose module adds and normalises, on its W^O."""
    model, inputs = made(name)
    returned = []
    watched = model.get_submodule(module + ".output.dense" if name == "bert" else module)
    handle = watched.register_forward_hook(lambda module, args, output: returned.append(output))
    run = torch_layers.read(model, module, inputs)
    handle.remove()
    output = returned[0][0] if isinstance(returned[0], tuple) else returned[0]
    np.testing.assert_array_equal(run.y, output.detach().numpy())
    runs.check(run, module)
    np.testing.assert_allclose(runs.outputs_of(run), run.y, atol=1e-5 * np.abs(run.y).max() + 1e-7)


def test_gpt2_is_described_by_its_config():
    make, inputs = build("gpt2", **SIZE)
    found = capture(make, inputs, networks=20, module=1).description
    assert (found.layer.heads, found.layer.head_dim, found.layer.mask, found.layer.rotary) == (4, 8, "causal", None)
    assert [found.variances[name].value for name in "qkvo"] == pytest.approx([4e-4, 4e-4, 4e-4, 1e-4])  # c_proj: / (2 layers)
    assert {found.variances[name].origin for name in "qkvo"} == {"initialiser"}
    assert found.scales == pytest.approx({"score_scale": 32 * 4e-4, "value_scale": 32 * 2e-4})
    scaled = AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=4, vocab_size=6, scale_attn_by_inverse_layer_idx=True)
    second = capture(lambda: AutoModel.from_config(scaled), inputs, networks=20, module=1).description
    assert second.scales["score_scale"] == pytest.approx(32 * 4e-4 / 2)


def test_a_partial_call_of_the_library_builds_models():
    """It does not tell its arguments to whoever inspects it."""
    config = AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=4, vocab_size=6)
    found = capture(partial(AutoModel.from_config, config), {"input_ids": np.arange(6)[None]}, networks=2)
    assert (found.networks, found.layer.heads) == (2, 4)


def test_bert_with_padding():
    make, _ = build("bert", **SIZE)
    ids, seen = np.stack([np.arange(6), np.arange(6)[::-1]]), np.array([[1] * 6, [1] * 4 + [0] * 2])
    batch = {"input_ids": ids, "attention_mask": seen}
    found = capture(make, batch, networks=5)
    layer = found.description.layer
    assert (layer.heads, layer.head_dim) == (4, 8)
    expected = ha.sequence_mask([6, 6])
    expected[6:, 10:] = False
    np.testing.assert_array_equal(found.mask, expected)
    assert found.kernel.shape == (5, 12, 12)
    np.testing.assert_allclose(np.einsum("mii->mi", found.kernel), 1, rtol=1e-3)  # inputs come from a LayerNorm


def test_llama_has_rotary_frequencies_and_shared_keys():
    make, inputs = build("llama", **SIZE, key_value_heads=2)
    found = capture(make, inputs, networks=5)
    layer = found.description.layer
    assert (layer.heads, layer.head_dim, layer.key_value_heads, layer.mask) == (4, 8, 2, "causal")
    np.testing.assert_allclose(layer.rotary, ha.rotary_frequencies(8), rtol=1e-5)
    np.testing.assert_allclose(found.outputs[0].shape, (6, 32))
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    sdpa = AutoConfig.for_model("llama", vocab_size=6, **size)
    other = capture(lambda: AutoModel.from_config(sdpa, attn_implementation="sdpa"), inputs, networks=2)
    assert other.mask == "causal"


def test_t5_has_its_own_scaling_bias_and_cross_attention():
    make, inputs = build("t5", **SIZE)
    found = capture(make, inputs, networks=20)
    layer = found.description.layer
    assert found.description.scales == pytest.approx({"score_scale": 1.0, "value_scale": 1.0})  # no 1 / sqrt(n_H) in scores
    assert {found.description.variances[name].origin for name in "qkvo"} == {"initialiser"}
    torch.manual_seed(0)
    attention = torch_layers.built(make, 1).encoder.block[0].layer[0].SelfAttention
    assert layer.bias.shape == attention.compute_bias(6, 6)[0].shape
    for a in range(4):  # one number a relative position, as the buckets of short distances are
        for distance in range(-5, 6):
            assert np.ptp(np.diagonal(layer.bias[a], distance)) == 0
    assert "drawn once" in found.description.remarks[-1]
    crossed = capture(make, inputs | {"decoder_input_ids": np.arange(4)[None]}, networks=20, module=LAYERS["t5"][3])
    assert (crossed.s, crossed.kernel.shape, crossed.tokens.tolist()) == (4, (20, 10, 10), [0, 1, 2, 3])
    assert crossed.description.layer.bias is None
    wide = AutoConfig.for_model("t5", d_model=32, d_kv=4, d_ff=64, num_layers=1, num_heads=2, vocab_size=6)
    assert capture(lambda: AutoModel.from_config(wide), inputs, networks=5).layer.head_dim == 4


@pytest.mark.parametrize(("name", "module"), [("gpt2", 1), ("bert", 0), ("llama", 0), ("t5", 0), ("t5", 3)])
def test_outputs_have_the_variance_that_follows(name, module):
    """Standard errors over 120 networks: 4 to 8 %. The mutant, heads summed with 1 / sqrt(H), is off by a factor of 4."""
    make, inputs = build(name, **SIZE | ({"key_value_heads": 2} if name == "llama" else {}))
    found = capture(make, inputs, networks=120, module=module)
    v = np.einsum("mii->mi", found.S) / found.coordinates
    law = of_observations(found, None, found.description.scales, seed=0).law
    drawn = (draw(law, 4000, 32, seed=1) ** 2).mean(axis=2)
    error = np.sqrt(v.var(axis=0) / 120 + drawn.var(axis=0) / 4000)
    assert within(v.mean(axis=0), drawn.mean(axis=0), error)
    assert not within(v.mean(axis=0), drawn.mean(axis=0) / 4, error)


def test_what_cannot_be_built():
    for changes, words in (
        ({"name": "gpt3"}, "--model: expected one of gpt2, gpt_neox, llama, mistral"),
        ({"width": 30}, "--width: expected a multiple of heads = 4"),
        ({"key_value_heads": 2}, "--key-value-heads: expected nothing with gpt2, where every head has its own, got 2"),
        ({"name": "vit", "tokens": 1}, "--tokens: expected at least 2 for vit"),
    ):
        with pytest.raises(InputError, match=words):
            build(**{"name": "gpt2", **SIZE} | changes)
