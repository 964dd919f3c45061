"""What the attention layers of Hugging Face's families do, field by field against their configs; and runs with a step left out.

Of one network each: width 32, four heads, eight tokens, fresh weights of standard deviation 0.15.
"""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

import hierattn as ha
from hierattn import InputError
from hierattn.frameworks import runs, torch_layers
from hierattn.frameworks.hugging_face.models import MODELS, build
from hierattn.frameworks.runs import Linear, Run

SIZE = {"layers": 2, "width": 32, "heads": 4, "tokens": 8}
STD = 0.15
SIGMA = 32**0.5 * STD  # of every map: 32 is the fan-in of q, k, v, and heads x head_dim of o
GROUPED = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "phi3", "gpt_oss")
CUT = 0.7737413  # the variance of a standard normal variable cut off at two standard deviations, 1 - 4 phi(2) / (2 Phi(2) - 1)
CAUSAL = {"mask": "causal"}
TURNED = {"rotary": 10_000.0 ** -np.array([0, 1 / 4, 2 / 4, 3 / 4])}
LLAMA = CAUSAL | TURNED
WINDOW = {"window": 4}
YARN = 0.1 * np.log(32) + 1  # gpt-oss: by which cos and sin are multiplied, as contexts are 32 times longer
OSS = CAUSAL | {"sigma_q": SIGMA * YARN**2, "sinks": True}
MODERN = dict.fromkeys(("sigma_q", "sigma_k", "sigma_v"), SIGMA * CUT**0.5) | {"sigma_o": SIGMA * CUT**0.5 / 2}
FIELDS = {  # (family, module): what is not as in a plain layer of one kernel
    ("gpt2", 0): CAUSAL | {"sigma_o": SIGMA / 2},  # divided by sqrt(2 layers)
    ("gpt_neox", 0): CAUSAL | {"rotary": np.array([1.0, 0, 0, 0])},  # a quarter of eight coordinates
    ("llama", 0): LLAMA,
    ("mistral", 0): LLAMA | WINDOW,
    ("qwen2", 0): LLAMA,
    ("qwen3", 0): LLAMA | {"qk_norm": "rms", "qk_eps": 1e-6},
    ("gemma2", 0): LLAMA | WINDOW | {"cap": 50.0},
    ("gemma2", 1): LLAMA | {"cap": 50.0},
    ("gemma3_text", 0): LLAMA | WINDOW | {"qk_norm": "rms", "qk_eps": 1e-6},
    ("gemma3_text", 1): CAUSAL | {"rotary": 1e6 ** -np.arange(0, 1, 1 / 4), "qk_norm": "rms", "qk_eps": 1e-6},
    ("olmo2", 0): LLAMA | {"qk_norm": "rms_all", "qk_eps": 1e-5},
    ("phi3", 0): LLAMA,
    ("gpt_oss", 0): OSS | WINDOW,
    ("gpt_oss", 1): OSS,
    ("bert", 0): {},
    ("modernbert", 0): MODERN | {"rotary": 160_000.0 ** -np.arange(0, 1, 1 / 4)},
    ("modernbert", 1): MODERN | TURNED | WINDOW,
    ("t5", 0): {"sigma_q": 1.0, "sigma_k": 1.0, "sigma_v": 1.0, "sigma_o": 1.0, "bias": True},
    ("t5", 2): {"sigma_q": 1.0, "sigma_k": 1.0, "sigma_v": 1.0, "sigma_o": 1.0, "bias": True} | CAUSAL,
    ("t5", 3): {"sigma_q": 1.0, "sigma_k": 1.0, "sigma_v": 1.0, "sigma_o": 1.0, "crossed": True},
    ("vit", 0): {},
    ("whisper", 0): {},
    ("whisper", 2): CAUSAL,
    ("whisper", 3): {"crossed": True},
}


def made(name, **more):
    """A model, and inputs."""
    std = None if name == "t5" else STD
    make, inputs = build(name, **SIZE | more, initializer_range=std, key_value_heads=2 if name in GROUPED else None)
    torch.manual_seed(0)
    return make().eval(), inputs


def test_no_family_is_left_out():
    """Latent attention, which has other fields, is in test_latent_runs.py."""
    assert {name for name, _ in FIELDS} == set(MODELS) - {"deepseek_v3"}


@pytest.mark.parametrize(("name", "module"), FIELDS)
def test_fields_are_those_of_the_config(name, module):
    model, inputs = made(name)
    expected = FIELDS[name, module]
    found = ha.capture(model, inputs, module=module)
    layer = found.layer
    assert (layer.heads, layer.head_dim, layer.groups) == (4, 8, 2 if name in GROUPED else 4)
    for sigma in ("sigma_q", "sigma_k", "sigma_v", "sigma_o"):
        assert getattr(layer, sigma) == pytest.approx(expected.get(sigma, SIGMA), rel=1e-6), sigma
    for word in ("qk_norm", "cap", "window", "chunk", "sink_scale"):
        assert getattr(layer, word) == expected.get(word), word
    assert layer.qk_eps == expected.get("qk_eps", 0.0)
    assert layer.qk_gain == pytest.approx(1.0)  # Gemma's weights are zero, and its gain is one more
    assert layer.score_function == "softmax"
    np.testing.assert_allclose(0.0 if layer.rotary is None else layer.rotary, expected_rotary(expected), rtol=1e-4, atol=1e-7)
    assert (layer.bias is not None, layer.sink is not None) == ("bias" in expected, "sinks" in expected)
    if "sinks" in expected:
        np.testing.assert_array_equal(layer.sink, model.layers[module].self_attn.sinks.detach().numpy())
    if "crossed" in expected:
        assert found.tokens.tolist() == list(range(8))
        np.testing.assert_array_equal(layer.mask[:8], np.kron([False, True], np.ones((8, 8), bool)))
    else:
        assert layer.mask == expected.get("mask")
    assert found.kernel.shape == 2 * ((16,) if "crossed" in expected else (8,))


def expected_rotary(expected):
    """gpt-oss has frequencies of its own, which are read off the library."""
    if "sinks" in expected:
        model, _ = made("gpt_oss")
        return model.rotary_emb.inv_freq.numpy()
    return expected.get("rotary", 0.0)


def test_other_settings_of_a_config():
    """Scores divided by another number: it goes into sigma_q, or into the gain of normed ones. And a small cap."""
    for name, more in (("gemma2", {"attn_logit_softcapping": 1.5}), ("gemma3_text", {})):
        model, inputs = made(name)
        settings = model.config.to_dict() | {"query_pre_attn_scalar": 32, "hidden_size": 32} | more
        config = AutoConfig.for_model(name, **{key: value for key, value in settings.items() if key != "model_type"})
        torch.manual_seed(0)
        layer = ha.capture(AutoModel.from_config(config, attn_implementation="eager").eval(), inputs).layer
        if name == "gemma2":
            assert (layer.cap, layer.sigma_q) == (1.5, pytest.approx(SIGMA / 2))
        else:
            assert (layer.qk_gain, layer.sigma_q) == (pytest.approx(0.5), pytest.approx(SIGMA))


def test_gains_of_a_trained_model():
    """The same for all coordinates, or it is refused: the law has no others."""
    model, inputs = made("qwen3")
    attention = model.layers[0].self_attn
    torch.nn.init.constant_(attention.q_norm.weight, 1.5)
    torch.nn.init.constant_(attention.k_norm.weight, 2.0)
    assert ha.capture(model, inputs).layer.qk_gain == pytest.approx(3.0)
    torch.nn.init.uniform_(attention.q_norm.weight)
    with pytest.raises(InputError, match="gains that are the same for all coordinates of a head"):
        ha.capture(model, inputs)


def test_sinks_vary_between_networks():
    make, inputs = build("gpt_oss", **SIZE, initializer_range=STD)
    found = ha.capture(make, inputs, networks=10).description
    assert (found.layer.sink, found.layer.sink_scale, found.variances["sink"].origin) == (
        0.0,
        pytest.approx(STD),
        "initialiser",
    )


def capped():
    """Gemma 2 with a cap that is felt."""
    model, inputs = made("gemma2")
    config = model.config
    config.attn_logit_softcapping = 1.0
    torch.manual_seed(0)
    return AutoModel.from_config(config, attn_implementation="eager").eval(), inputs


def longer(run):
    """A window of one more token."""
    apart = np.subtract.outer(np.arange(8), np.arange(8))
    return {"allowed": run.allowed | (apart == 4)}


def swapped(run):
    """Values read where keys are, and the other way round."""
    return {"maps": run.maps | {"k": run.maps["v"], "v": run.maps["k"]}}


def side_by_side(run):
    """The parts of GPT-NeoX, which go head by head, read as if they were side by side."""
    packed = np.stack([run.maps[x].W.reshape(32, 4, 8) for x in "qkv"], axis=2).reshape(32, 96)
    return {"maps": run.maps | {x: Linear(W) for x, W in zip("qkv", np.split(packed, 3, axis=1), strict=True)}}


MUTANTS = {
    "norm left out": ("qwen3", lambda run: {"norms": None}),
    "norm over all heads": ("qwen3", lambda run: {"norms": tuple(x._replace(kind="rms_all") for x in run.norms)}),
    "norm over each head": ("olmo2", lambda run: {"norms": tuple(x._replace(kind="rms") for x in run.norms)}),
    "norm of other eps": ("gemma3_text", lambda run: {"norms": tuple(x._replace(eps=0.1) for x in run.norms)}),
    "cap off by a tenth": (capped, lambda run: {"cap": 1.1}),
    "cap left out": (capped, lambda run: {"cap": None}),
    "sinks left out": ("gpt_oss", lambda run: {"sinks": None}),
    "sinks of other heads": ("gpt_oss", lambda run: {"sinks": run.sinks[::-1]}),
    "window too long": ("mistral", longer),
    "parts permuted": ("phi3", swapped),
    "parts side by side": ("gpt_neox", side_by_side),
    "all coordinates turned": ("gpt_neox", lambda run: {"rotary": np.repeat(run.rotary, 4)}),
    "no positions": ("modernbert", lambda run: {"rotary": None}),
    "factor forgotten": ("whisper", lambda run: {"factor": 1.0}),
}


@pytest.mark.parametrize(("name", "change"), MUTANTS.values(), ids=MUTANTS)
def test_a_step_that_is_wrong_is_refused(name, change):
    model, inputs = made(name) if isinstance(name, str) else name()
    run = torch_layers.read(model, torch_layers.layers(model, inputs)[0], inputs)
    runs.check(run, "layer")
    with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
        runs.check(Run(**vars(run) | change(run)), "layer")
