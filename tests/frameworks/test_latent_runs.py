"""DeepSeek's latent attention: read from a model of a config, described, checked; steps left out are refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest

pytest.importorskip("transformers")

import hierattn as ha
from hierattn import InputError
from hierattn.frameworks import torch_layers
from hierattn.frameworks.hugging_face.models import build
from hierattn.frameworks.runs import Linear


def made(std=0.2):
    make, inputs = build("deepseek_v3", 1, 32, 4, 6, None, std)
    return make(), inputs


@pytest.fixture(scope="module")
def run():
    model, inputs = made()
    return torch_layers.read(model, torch_layers.layers(model, inputs)[0], inputs)


def test_what_ran_is_explained(run):
    run.check("layer")
    assert {name: linear.W.shape for name, linear in run.maps.items()} == {
        "d": (32, 16),
        "q": (16, 4 * 12),
        "c": (32, 16),
        "r": (32, 4),
        "k": (16, 32),
        "v": (16, 32),
        "o": (32, 32),
    }


def without_norms(run):
    return {"norms": {name: norm._replace(eps=1.0) for name, norm in run.norms.items()}}


MUTANTS = {
    "norms of other eps": without_norms,
    "turned part left out": lambda run: {"maps": run.maps | {"r": Linear(0 * run.maps["r"].W)}},
    "keys read as values": lambda run: {"maps": run.maps | {"k": run.maps["v"], "v": run.maps["k"]}},
    "no positions": lambda run: {"rotary": 0 * run.rotary},
    "factor of the content alone": lambda run: {"factor": 8**-0.5},
    "no mask": lambda run: {"allowed": np.ones_like(run.allowed)},
}


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_a_step_that_is_wrong_is_refused(run, change):
    with pytest.raises(InputError, match="outputs that its weights, mask and positions explain"):
        replace(run, **change(run)).check("layer")


def test_the_description_is_the_configs():
    """Scales are standard deviations times the root of the fan-in; scores are divided by the root of all coordinates."""
    captured = ha.capture(lambda: made()[0], made()[1], networks=3)
    layer = captured.description.layer
    assert (layer.heads, layer.head_dim, layer.value_dim, layer.key_rank, layer.query_rank) == (4, 8, 8, 16, 16)
    assert (layer.mask, len(layer.rotary), captured.layer, captured.heads) == ("causal", 2, None, 4)
    np.testing.assert_allclose([layer.sigma_q, layer.sigma_k, layer.sigma_v], 0.2 * 4, rtol=1e-6)
    np.testing.assert_allclose([layer.sigma_key_latent, layer.sigma_r, layer.sigma_o], 0.2 * 32**0.5, rtol=1e-6)
    assert captured.description.variances["k"].origin == "initialiser"
    assert ha.LatentLaw(layer, captured.kernel[0]).sample_variances(jax.random.key(0), 8).shape == (8,)


def test_biases_are_refused(run):
    biased = replace(run, maps=run.maps | {"o": Linear(run.maps["o"].W, np.ones(32))})
    with pytest.raises(InputError, match="layer: expected latent attention without biases, got some of o"):
        biased.check("layer")
