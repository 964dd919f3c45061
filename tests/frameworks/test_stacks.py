"""Whole Hugging Face models at initialisation follow the stack read off their config, layer by layer, nothing fitted."""

import jax
import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
from transformers import AutoConfig, AutoModel

from hierattn.stack.families import stack_from_config
from tests.stack.compared import p_value
from tests.statistics import LEVEL

IDS = [5, 9, 3, 5, 7, 11]
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 16}
SMALL |= {"initializer_range": 0.2, "attn_implementation": "eager"}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 16, "initializer_range": 0.2}
MODELS = {
    "gpt2": GPT2,
    "gpt_neox": SMALL,
    "llama": SMALL | {"num_key_value_heads": 2},
    "mistral": SMALL | {"num_key_value_heads": 2, "sliding_window": 3},
    "qwen2": SMALL | {"num_key_value_heads": 4},
    "phi3": SMALL | {"num_key_value_heads": 2, "pad_token_id": 0},
    "bert": SMALL,
    "qwen3": SMALL | {"num_key_value_heads": 2, "head_dim": 8},
    "olmo2": SMALL,
    "gemma2": SMALL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3, "query_pre_attn_scalar": 16},
    "gemma3_text": SMALL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3, "num_hidden_layers": 7},
}
MODELS["gemma2"] |= {"attn_logit_softcapping": 1.0}
NETWORKS = 60
EVERY_TIME = ("bert", "gpt2", "llama", "gemma2")  # the others by `make verify`


def hidden(config, networks):
    """Gram matrices of all hidden states of models built anew, (network, layer, token, token)."""
    grams = []
    for seed in range(networks):
        torch.manual_seed(seed)
        model = AutoModel.from_config(config).eval().double()
        with torch.no_grad():
            states = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
        X = np.stack([x[0].numpy() for x in states])
        grams.append(X @ X.swapaxes(1, 2) / X.shape[-1])
    return np.stack(grams)


def followed(family, settings, networks, change=lambda fields: fields):
    """The p-value of real models against the law of their config; the library's last state is that after the final norm."""
    config = AutoConfig.for_model(family, **settings)
    stack = stack_from_config(change(config.to_diff_dict() | {"model_type": family}), IDS)
    gram = stack.sample(jax.random.key(0), networks).gram
    if stack.final_norm is not None:
        gram = np.delete(gram, -2, axis=1)
    return p_value(gram, hidden(config, networks))


@pytest.mark.parametrize(
    "family", [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_models_at_initialisation_follow_their_config(family):
    assert followed(family, MODELS[family], NETWORKS) > LEVEL


def test_another_config_is_told_apart():
    assert followed("llama", MODELS["llama"], NETWORKS, lambda fields: fields | {"initializer_range": 0.25}) < LEVEL
