"""Flax's own layer, alone and inside a model: what is read is what ran, and the law follows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hierattn as ha
from hierattn import InputError
from hierattn.frameworks import flax_layers, runs
from hierattn.frameworks.runs import Run
from tests.frameworks.drawn import has_variances_of
from tests.statistics import within

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 16)).astype(np.float32)


def layer(seed, **options):
    settings = {"num_heads": 4, "in_features": 16, "decode": False} | options
    return nnx.MultiHeadAttention(**settings, rngs=nnx.Rngs(seed))


class Model(nnx.Module):
    """Two blocks, the second of which looks back only."""

    def __init__(self, seed, dropout=0.0):
        rngs = nnx.Rngs(seed)
        options = {"num_heads": 2, "in_features": 16, "decode": False, "dropout_rate": dropout, "rngs": rngs}
        self.blocks = nnx.List([nnx.MultiHeadAttention(**options) for _ in range(3)])
        self.norm = nnx.LayerNorm(16, rngs=rngs)

    def __call__(self, x):
        for i, block in enumerate(self.blocks):
            x = x + block(self.norm(x), mask=nnx.make_causal_mask(x[..., 0]) if i else None)
        return x


class Jitted(Model):
    def __call__(self, x):
        return jax.jit(super().__call__)(x)


SETTINGS = {
    "plain": ({}, X),
    "batch": ({}, RNG.normal(size=(3, 5, 16)).astype(np.float32)),
    "causal": ({}, {"inputs_q": X, "mask": np.tri(5, dtype=bool)[None]}),
    "is_causal": ({}, {"inputs_q": X[None], "is_causal": True}),
    "grouped": ({"num_kv_heads": 2}, X),
    "narrow": ({"qkv_features": 8, "out_features": 7}, X),
    "biases": ({"bias_init": nnx.initializers.normal(0.5)}, X),
    "normed": ({"normalize_qk": True, "num_kv_heads": 2, "use_bias": False}, X),
    "crossed": ({"in_kv_features": 12}, (X, RNG.normal(size=(7, 12)).astype(np.float32))),
}


@pytest.mark.parametrize(("options", "inputs"), SETTINGS.values(), ids=SETTINGS)
def test_what_is_read_is_what_ran(options, inputs):
    model = layer(0, **options)
    run = flax_layers.read(model, "", inputs)
    np.testing.assert_array_equal(run.y.reshape(-1), np.asarray(flax_layers.run(model, inputs)).reshape(-1))
    runs.check(run, "layer")
    np.testing.assert_allclose(runs.outputs_of(run), run.y, atol=2e-5)
    assert (run.heads, run.head_dim) == (4, 2 if "qkv_features" in options else 4)
    assert run.key_value_heads == options.get("num_kv_heads", 4)


def test_layers_inside_a_model_in_order():
    model = Model(0)
    assert flax_layers.layers(model, X[None]) == [f"blocks.{i}" for i in range(3)]
    run = flax_layers.read(model, "blocks.1", X[None])
    np.testing.assert_array_equal(run.allowed[0], np.tri(5))
    runs.check(run, "layer")
    assert flax_layers.read(model, "blocks.0", X[None]).allowed.all()
    assert {type(block) for block in model.blocks} == {nnx.MultiHeadAttention}  # no one watches any more


def test_only_the_layer_that_is_watched_is_touched():
    """Not its class: other instances, and other threads, call it as ever; a run that fails leaves nothing behind."""
    model, called = Model(0), nnx.MultiHeadAttention.__call__
    seen = []

    class Looks(nnx.Module):
        def __init__(self, model):
            self.model = model

        def __call__(self, x):
            seen.extend([nnx.MultiHeadAttention.__call__ is called, *(type(b) is nnx.MultiHeadAttention for b in model.blocks)])
            return self.model(x)

    flax_layers.read(Looks(model), "model.blocks.1", X[None])
    assert seen == [True, True, False, True]
    with pytest.raises(TypeError):
        flax_layers.read(model, "blocks.1", (X[None], X[None]))
    assert {type(block) for block in model.blocks} == {nnx.MultiHeadAttention}


def test_initialisers_are_known():
    for init, known in ((nnx.initializers.lecun_normal(), 1 / 16), (nnx.initializers.xavier_uniform(), 2 / (16 + 8))):
        found = ha.capture(lambda seed, init=init: layer(seed, kernel_init=init, qkv_features=8), X, networks=20).description
        assert [found.variances[name].origin for name in "qkvo"] == 4 * ["initialiser"]
        assert found.variances["q"].value == pytest.approx(known)


def test_a_layer_by_its_own_initialiser_follows_the_law():
    """Standard errors over 120 networks: 4 %; the mutant is off by 40 %."""
    found = ha.capture(layer, X, networks=120)
    assert found.description.scales == pytest.approx({"score_scale": 1.0, "value_scale": 1.0})
    v = np.einsum("mii->mi", found.S) / found.coordinates
    drawn = np.einsum("mii->mi", ha.Law(found.layer, found.kernel).sample_Sigma(jax.random.key(0), 20_000))
    error = np.sqrt(v.var(axis=0) / 120 + drawn.var(axis=0) / 20_000)
    assert within(v.mean(axis=0), drawn.mean(axis=0), error)
    assert not within(v.mean(axis=0), 1.4 * drawn.mean(axis=0), error)


def test_normed_queries_and_keys():
    """A LayerNorm over each head, of eps 1e-6, gain one; without it, or with an RMSNorm, outputs are others."""
    model = layer(0, normalize_qk=True)
    found = ha.capture(model, X)
    assert (found.layer.qk_norm, found.layer.qk_gain, found.layer.qk_eps) == ("layer", 1.0, 1e-6)
    run = flax_layers.read(model, "", X)
    for norms in (None, tuple(norm._replace(kind="rms") for norm in run.norms)):
        with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
            runs.check(Run(**vars(run) | {"norms": norms}), "layer")
    model.query_ln.scale[...] = np.arange(4.0)
    with pytest.raises(InputError, match="gains that are the same for all coordinates of a head"):
        ha.capture(model, X)


def test_a_normed_layer_follows_the_law():
    """Standard errors over 300 networks: 3 %; the mutant, a gain of zero, has all weights alike."""
    init = nnx.initializers.normal(0.5)
    found = ha.capture(lambda seed: layer(seed, normalize_qk=True, kernel_init=init), X, networks=300)
    assert has_variances_of(found, found.layer)
    assert not has_variances_of(found, found.layer.replace(qk_gain=0.0))


def test_what_cannot_be_read():
    with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
        ha.capture(lambda seed: layer(seed, attention_fn=lambda q, k, v, **more: v + q), X)
    with pytest.raises(InputError, match="keys and values of the same inputs"):
        ha.capture(lambda seed: layer(seed), (X, X, 2 * X))
    with pytest.raises(InputError, match=r"dropout switched off, got a rate of 0.1 in blocks.0; call model.eval\(\) first"):
        ha.capture(Model(0, dropout=0.1), X[None])
    model = Model(0, dropout=0.1)
    model.eval()
    assert ha.capture(model, X[None]).heads == 2
    with pytest.raises(InputError, match="a function of a seed that builds the model, got one MultiHeadAttention"):
        ha.capture(layer(0), X, networks=2)
    with pytest.raises(InputError, match="a model that runs without jit"):
        ha.capture(Jitted(0), jnp.asarray(X[None]))
