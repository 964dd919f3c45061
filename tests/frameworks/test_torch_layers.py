"""PyTorch's own layer, alone and inside a model: what is read is what ran, by its own initialiser, and the law follows."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import hierattn as ha
from hierattn import InputError
from hierattn.frameworks import runs, torch_layers
from tests.statistics import within

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 16)).astype(np.float32)
BATCH = RNG.normal(size=(3, 5, 16)).astype(np.float32)
FORBIDDEN = ~np.tri(5, dtype=bool)


def layer(**options):
    return nn.MultiheadAttention(**{"embed_dim": 16, "num_heads": 4} | options).eval()


def same(x, **more):
    return {"query": x, "key": x, "value": x} | more


KEYS = RNG.normal(size=(7, 12)).astype(np.float32)
CROSSED = {"query": X, "key": KEYS, "value": KEYS}
BIAS = np.tile(RNG.normal(size=(4, 5, 5)), (3, 1, 1)).astype(np.float32)
PADDING = np.arange(5) >= np.array([5, 3, 4])[:, None]
SETTINGS = {
    "plain": ({}, X),
    "batch second": ({}, BATCH.swapaxes(0, 1).copy()),
    "batch first": ({"batch_first": True}, BATCH),
    "causal": ({}, same(X, attn_mask=FORBIDDEN)),
    "bias": ({}, same(X, attn_mask=RNG.normal(size=(5, 5)).astype(np.float32))),
    "bias a head": ({"batch_first": True}, same(BATCH, attn_mask=BIAS)),
    "padding": ({"batch_first": True}, same(BATCH, key_padding_mask=PADDING)),
    "no biases": ({"bias": False}, X),
    "crossed": ({"kdim": 12, "vdim": 12}, CROSSED),
}


@pytest.mark.parametrize(("options", "inputs"), SETTINGS.values(), ids=SETTINGS)
def test_what_is_read_is_what_ran(options, inputs):
    torch.manual_seed(0)
    model = layer(**options)
    if model.in_proj_bias is not None:
        nn.init.normal_(model.in_proj_bias)
        nn.init.normal_(model.out_proj.bias)
    run = torch_layers.read(model, "", inputs)
    with torch.no_grad():
        returned = torch_layers.run(model, inputs)[0].numpy()
    np.testing.assert_array_equal(np.sort(run.y.reshape(-1)), np.sort(returned.reshape(-1)))
    runs.check(run, "layer")
    np.testing.assert_allclose(runs.outputs_of(run), run.y, atol=2e-5)


def test_packed_weights_are_xaviers_of_the_packed_shape():
    """in_proj_weight is (3 n, n): entries of variance 2 / (n + 3 n), not 2 / (n + n); W^O is Linear's own, 1 / (3 n)."""
    found = ha.capture(layer(), X, networks=50).description
    assert [found.variances[name].origin for name in "qkvo"] == 4 * ["initialiser"]
    assert [found.variances[name].value for name in "qkvo"] == pytest.approx([1 / 32, 1 / 32, 1 / 32, 1 / 48])
    assert found.scales == pytest.approx({"score_scale": 0.5, "value_scale": 6**-0.5})
    apart = ha.capture(layer(kdim=12, vdim=12), CROSSED, networks=50).description
    assert [apart.variances[name].value for name in "qkv"] == pytest.approx([1 / 16, 1 / 14, 1 / 14])


def gaussian():
    model = nn.MultiheadAttention(16, 4, bias=False)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


def test_gaussian_layers_follow_the_law():
    """400 networks: standard error of the variance 2 to 3 %; the mutants are off by 15 % and more."""
    found = ha.capture(gaussian, same(X, attn_mask=FORBIDDEN), networks=400)
    assert found.mask == "causal"
    v = np.einsum("mii->mi", found.S) / found.coordinates

    def agrees(layer):
        law = ha.Law(layer.replace(mask="causal"), found.kernel)
        drawn = np.einsum("mii->mi", law.sample_Sigma(jax.random.key(0), 20_000))
        return within(v.mean(axis=0), drawn.mean(axis=0), np.sqrt(v.var(axis=0) / 400 + drawn.var(axis=0) / 20_000))

    assert agrees(found.layer)
    assert not agrees(found.layer.replace(sigma_o=found.layer.sigma_o / 2))
    assert not agrees(found.layer.replace(sigma_q=0.0))
    assert ha.diagnose(found).consistent


class Block(nn.Module):
    """Someone's own block, which PyTorch cannot draw anew."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.mixing = nn.MultiheadAttention(16, 2, batch_first=True, dropout=dropout)
        self.unused = nn.MultiheadAttention(16, 2)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        return self.out(x + self.mixing(x, x, x)[0])


def test_layers_inside_a_model():
    block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    assert torch_layers.layers(encoder, BATCH) == ["layers.0.self_attn", "layers.1.self_attn"]
    found = ha.capture(encoder, BATCH, networks=3, module=1)
    assert found.outputs.shape == (3, 15, 16)
    assert found.kernel.shape == (3, 15, 15)
    assert torch_layers.layers(Block(), BATCH) == ["mixing", "unused"]
    assert ha.capture(Block, BATCH, networks=2).description.module == "mixing (MultiheadAttention)"


def test_networks_are_reproducible_and_leave_the_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one, two = (ha.capture(gaussian, X, networks=3, seed=5).outputs for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert torch.equal(torch.rand(3), expected)
    model = layer()
    nn.init.constant_(model.in_proj_bias, 3.0)
    before = model.in_proj_weight.detach().clone()
    drawn = ha.capture(model, X, networks=3)
    assert torch.equal(model.in_proj_weight, before)
    np.testing.assert_array_equal(drawn.outputs, ha.capture(layer(), X, networks=3).outputs)  # none is the model as it was
    with torch.no_grad():
        np.testing.assert_array_equal(ha.capture(model, X).outputs[0], torch_layers.run(model, X)[0] - model.out_proj.bias)


def test_what_cannot_be_read():
    with pytest.raises(InputError, match=r"parts of torch.nn, whose initialisers are known, got Block; give a function"):
        ha.capture(Block().eval(), BATCH, networks=2)
    with pytest.raises(InputError, match=r"dropout switched off, got a rate of 0.1 in mixing; call model.eval\(\) first"):
        ha.capture(Block(dropout=0.1), BATCH)
    assert ha.capture(lambda: Block(dropout=0.1), BATCH).heads == 2
    with pytest.raises(InputError, match="module: expected a part of the model that runs on these inputs, got unused"):
        ha.capture(Block, BATCH, module="unused")
    with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
        ha.capture(lambda: nn.MultiheadAttention(16, 4, add_bias_kv=True), X)
    with pytest.raises(InputError, match="keys and values of the same inputs"):
        ha.capture(layer(), (X, X, 2 * X))
    with pytest.raises(InputError, match="expected numbers in float32 or float64, got float16"):
        ha.capture(layer().half(), X)
    with pytest.raises(InputError, match=r"none among the model itself \(Linear\); describe it by hand"):
        ha.capture(nn.Linear(16, 16), X)


def test_a_module_described_by_hand():
    found = ha.capture(nn.Linear(16, 16), X, networks=3, module="", layer=ha.Architecture(heads=2, head_dim=8))
    assert found.outputs.shape == (3, 5, 16)
    assert found.description.remarks == ("described by hand: its weights were not looked at",)
