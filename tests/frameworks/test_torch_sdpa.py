"""Modules of a user's own that call scaled_dot_product_attention: what is traced back is what ran, and the law follows."""

import numpy as np
import pytest
import torch
from torch import nn

import hierattn as ha
from hierattn import InputError
from hierattn.frameworks import runs, torch_layers
from hierattn.frameworks.runs import Run
from tests.frameworks.drawn import has_variances_of
from tests.frameworks.torch_modules import HEAD_DIM, HEADS, Crossed, Grouped, Inner, Model, N, Packed, turned

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, N)).astype(np.float32)
BIAS = torch.tensor(RNG.normal(size=(HEADS, 5, 5)), dtype=torch.float32)
SEEN = torch.tensor(np.tri(5, dtype=bool) | np.eye(5, k=1, dtype=bool))
MEMORY = torch.tensor(RNG.normal(size=(2, 3, 8)), dtype=torch.float32)


def interleaved(x):
    return turned(x, interleaved=True)


def in_part(x):
    return turned(x, rotate=4)


def layer_norm():
    return nn.LayerNorm(HEAD_DIM, eps=0.1, bias=False)


MODULES = {
    "packed": Packed,
    "causal, scale": lambda: Packed(options={"is_causal": True, "scale": 0.3}),
    "boolean mask": lambda: Packed(options={"attn_mask": SEEN}),
    "bias of every head": lambda: Packed(options={"attn_mask": BIAS}),
    "rotary, halves": lambda: Packed(turned, bias=False),
    "rotary, neighbours": lambda: Packed(interleaved, bias=False),
    "rotary in part": lambda: Packed(in_part),
    "layer norm": lambda: Packed(norm=layer_norm),
    "rms norm, rotary": lambda: Packed(interleaved, norm=lambda: nn.RMSNorm(HEAD_DIM)),
    "grouped by hand": Grouped,
    "grouped by PyTorch": lambda: Grouped(enable_gqa=True),
    "norm over all heads": lambda: Grouped(over_all=True),
    "crossed, one head": lambda: Crossed(MEMORY),
}


def read(model, x=X):
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    (name,) = torch_layers.layers(model.eval(), x)
    return torch_layers.read(model, name, x)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_read_is_what_ran(name):
    model = MODULES[name]()
    run = read(model)
    runs.check(run, "layer")
    np.testing.assert_allclose(runs.outputs_of(run), run.y, atol=2e-5)
    with torch.no_grad():
        np.testing.assert_array_equal(run.y, model(torch.tensor(X)).numpy())
    heads = 1 if name.startswith("crossed") else HEADS
    assert (run.heads, run.head_dim, run.key_value_heads) == (heads, HEAD_DIM, 2 if isinstance(model, Grouped) else heads)
    assert (run.rotary is not None, run.norms is not None) == ("rotary" in name, "norm" in name)
    assert run.crossed == name.startswith("crossed")


def test_what_each_is():
    run = read(MODULES["causal, scale"]())
    assert (run.factor, run.allowed[1].tolist()) == (0.3, np.tri(5, dtype=bool).tolist())
    np.testing.assert_array_equal(read(MODULES["boolean mask"]()).allowed[1], SEEN.numpy())
    np.testing.assert_allclose(read(MODULES["bias of every head"]()).bias, BIAS.numpy())
    for name in ("rotary, halves", "rotary, neighbours"):
        np.testing.assert_allclose(read(MODULES[name]()).rotary, 100.0 ** -np.array([0, 1 / 3, 2 / 3]), rtol=1e-5)
    np.testing.assert_allclose(read(MODULES["rotary in part"]()).rotary, [1.0, 0.1], rtol=1e-5)
    norms = {name: read(MODULES[name]()).norms for name in ("layer norm", "rms norm, rotary", "norm over all heads")}
    assert [(q.kind, q.eps) for q, _ in norms.values()] == [("layer", 0.1), ("rms", np.finfo("f").eps), ("rms_all", 0.01)]
    assert [len(k.gain) for _, k in norms.values()] == [HEAD_DIM, HEAD_DIM, 2 * HEAD_DIM]


MUTANTS = {
    "norm left out": ("layer norm", lambda run: {"norms": None}),
    "not turned": ("rotary, neighbours", lambda run: {"rotary": None}),
    "heads permuted": ("packed", lambda run: {"maps": run.maps | {"o": run.maps["o"]._replace(W=run.maps["o"].W[::-1])}}),
    "mask left out": ("boolean mask", lambda run: {"allowed": np.ones_like(run.allowed)}),
    "scale forgotten": ("causal, scale", lambda run: {"factor": HEAD_DIM**-0.5}),
}


@pytest.mark.parametrize(("name", "change"), MUTANTS.values(), ids=MUTANTS)
def test_a_step_that_is_wrong_is_refused(name, change):
    run = read(MODULES[name]())
    with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
        runs.check(Run(**vars(run) | change(run)), "layer")


def test_layers_of_both_kinds_in_order():
    model = Model().eval()
    names = torch_layers.layers(model, X)
    assert names == ["blocks.0", "blocks.1", "blocks.2"]
    for name in names:
        runs.check(torch_layers.read(model, name, X), name)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_torch_nn_linear_is_known():
    """Weights and biases are uniform, of variance 1 / (3 fan-in): normed keys and values have then the same kernel."""
    found = ha.capture(lambda: Packed(norm=layer_norm), X[:1], networks=30).description
    assert {found.variances[name].origin for name in ("q", "k", "v", "o", "b_q", "b_k", "b_v", "b_o")} == {"initialiser"}
    assert (found.layer.qk_norm, found.layer.qk_eps) == ("layer", 0.1)
    assert (found.layer.sigma_q, found.layer.sigma_v) == pytest.approx((3**-0.5, 3**-0.5))


def test_a_layer_follows_the_law():
    """300 networks: standard error of the variance 2 to 3 %; the mutant, no norms, is off by 20 % and more."""

    def build():
        model = Packed(interleaved, norm=lambda: nn.RMSNorm(HEAD_DIM), bias=False)
        for weight in (model.into.weight, model.out.weight):
            nn.init.normal_(weight, std=0.5)
        nn.init.constant_(model.norms[0].weight, 3.0)
        return model

    found = ha.capture(build, X[0], networks=300)
    assert (found.layer.qk_norm, found.layer.qk_gain) == ("rms", pytest.approx(3.0))
    assert has_variances_of(found, found.layer)
    assert not has_variances_of(found, found.layer.replace(qk_gain=0.0))


class Strange(Packed):
    """Does something in between."""

    def __init__(self, between):
        super().__init__()
        self.between = between

    def forward(self, x):
        q, k, v = (a.transpose(1, 2) for a in self.into(x).unflatten(-1, (3, HEADS, HEAD_DIM)).unbind(-3))
        y = nn.functional.scaled_dot_product_attention(*self.between(q, k, v))
        return self.out(y.transpose(1, 2).flatten(2))


REFUSED = {
    "queries made of a linear map's outputs": lambda: Strange(lambda q, k, v: (torch.tanh(q), k, v)),
    "keys made of a linear map's outputs": lambda: Strange(lambda q, k, v: (q, 2 * k, v)),
    "values made of a linear map's outputs alone": lambda: Strange(lambda q, k, v: (q, k, turned(v))),
    "weights of their own, got the same for q and k": lambda: Strange(lambda q, k, v: (q, q, v)),
    "queries and keys that are both turned": lambda: Strange(lambda q, k, v: (turned(q), k, v)),
    "dropout switched off, got dropout_p 0.5": lambda: Packed(options={"dropout_p": 0.5}),
    "shared by as many neighbours each": lambda: Grouped(repeat=lambda x: x.repeat(1, 2, 1, 1)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_read(words):
    with pytest.raises(InputError, match=words):
        ha.capture(REFUSED[words]().eval(), X)


def test_what_is_no_layer():
    class Twice(Packed):
        def forward(self, x):
            return super().forward(super().forward(x))

    with pytest.raises(InputError, match="expected one call of scaled_dot_product_attention, got 2"):
        ha.capture(Twice().eval(), X)
    with pytest.raises(InputError, match="an attention layer that is recognised, got none"):
        ha.capture(Inner().eval(), (*3 * [torch.ones(1, 2, 3, 4)], None))

    class Open(Packed):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(N, N)
            self.out = nn.Identity()

        def forward(self, x):
            return super().forward(self.more(x))

    with pytest.raises(InputError, match="a linear map of all heads' outputs, got none"):
        ha.capture(Open().eval(), X)
