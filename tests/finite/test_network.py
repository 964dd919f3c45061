"""Networks drawn weight by weight, against the independent NumPy ones of tests/explicit.py and against their own moments."""

import jax
import numpy as np
import pytest

from hierattn import Architecture, InputError, kernels, network, rotary_frequencies
from hierattn.finite.inputs import RandomInputs
from tests import explicit
from tests.statistics import mean_agrees, same_joint_law, same_second_moments
from tests.variants import variants

KEY = jax.random.key(0)
X = 1.3 * np.random.default_rng(0).normal(size=(4, 7))
X_Q = 1.3 * np.random.default_rng(1).normal(size=(3, 7))
BIAS = -0.5 * np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
PLAIN = Architecture(heads=2, head_dim=3, sigma_q=1.5)
VARIANTS = {  # the layer, and what the mutant changes
    "plain": ({}, {"sigma_q": 1.7}),
    "narrow": ({"head_dim": 2}, {"head_dim": 4}),
    "causal": ({"mask": "causal"}, {"mask": None}),
    "bias": ({"bias": np.stack([BIAS, 2 * BIAS])}, {"bias": None}),
    "rotary": ({"head_dim": 4, "rotary": rotary_frequencies(4)}, {"rotary": np.zeros(2)}),
    "grouped": ({"heads": 4, "key_value_heads": 2}, {"key_value_heads": None}),
    "identity": ({"score_function": "identity"}, {"sigma_q": 1.6}),
    "linear": ({"scaling": "linear"}, {"scaling": "sqrt"}),
    "unequal": ({"sigma_q": [0.5, 2.5], "sigma_k": 1.2, "sigma_v": [0.7, 1.5], "sigma_o": 1.3}, {"sigma_q": [2.5, 0.5]}),
}


def same_networks(ours, theirs):
    """Outputs jointly, and second moments of some scores of all heads."""
    y, p = theirs
    few = [np.asarray(x)[:, :, 1:3, 2:] for x in (ours.p, p)]
    return same_joint_law(ours.y, y, np.random.default_rng(0)) and same_second_moments(*few)


@pytest.mark.parametrize("name", variants(VARIANTS, ["rotary", "grouped", "unequal"]))
def test_given_inputs_against_explicit_weights(name):
    """Of the slow ones tests/fields.py has plain, causal, identity and linear every time, by second and fourth moments.

    20,000 networks of width 7 a side, four coordinates: the mutant differs in the one thing that the case is about.
    """
    (changes, wrong), rng = VARIANTS[name], np.random.default_rng(2)
    layer = PLAIN.replace(**changes)
    ours = network.simulate(KEY, layer, X, 20_000, 4)
    assert same_networks(ours, explicit.draw(rng, layer, X, networks=20_000, coordinates=4))
    assert not same_networks(ours, explicit.draw(rng, layer.replace(**wrong), X, networks=20_000, coordinates=4))


def test_cross_attention_against_explicit_weights():
    """As above; in the mutant the queries are inputs that keys and values have too."""
    rng = np.random.default_rng(3)
    ours = network.simulate(KEY, PLAIN, X, 20_000, 4, query_inputs=X_Q)
    assert ours.p.shape == (20_000, 2, 3, 4)
    assert same_networks(ours, explicit.draw(rng, PLAIN, X, X_Q, networks=20_000, coordinates=4))
    assert not same_networks(ours, explicit.draw(rng, PLAIN, X, X[:3], networks=20_000, coordinates=4))


@pytest.mark.parametrize("activation", ["clip", "relu"])
def test_gram_matrices_of_random_inputs(activation):
    """E[G] = K, and of G = r W / n also second moments: a hidden vector h that tokens did not share would be seen."""
    n, K = 16, kernels.activation(activation, 5)
    X_q, X = jax.vmap(lambda key: network.draw_inputs(key, RandomInputs(n, 3, activation, queries=2)))(
        jax.random.split(KEY, 40_000)
    )
    X = np.concatenate([X_q, X], axis=1)
    G = X @ X.swapaxes(1, 2) / n
    assert mean_agrees(G, K)
    assert not mean_agrees(G, 1.02 * K)
    diagonal = np.einsum("mii->mi", G)
    shared = diagonal[:, :, None] * diagonal[:, None]
    if activation == "clip":
        assert mean_agrees(shared, (1 + 2 / n) * np.where(np.eye(5), 1 + 2 / n, 1))
        assert mean_agrees(G[:, 0, 1:] ** 2, (1 + 2 / n) / n)
    assert not mean_agrees(shared[:, 0, 1:], K[0, 0] ** 2)


def test_score_moments_at_finite_width():
    """Variance (1 + 2/n)^2 and the kurtosis of THEORY section 10; with G fixed at K they would be 1 and 3 (1 + 2/n)."""
    n = 16
    p = np.asarray(network.simulate(KEY, Architecture(), RandomInputs(n, tokens=1), 50_000).p, float).ravel()
    variance = (1 + 2 / n) ** 2
    fourth = 3 * (1 + 2 / n) * ((1 + 2 / n) * (1 + 4 / n) * (1 + 6 / n)) ** 2
    assert mean_agrees(p**2, variance)
    assert mean_agrees(p**4, fourth)
    assert not mean_agrees(p**2, 1.0)
    assert not mean_agrees(p**4, 3 * (1 + 2 / n) * variance**2)


def test_a_network_depends_on_its_key_and_number_alone(monkeypatch):
    layer, inputs = Architecture(heads=2, mask="causal"), RandomInputs(6, 3, "relu")
    many = network.simulate(KEY, layer, inputs, 20, 2)
    assert len(np.unique(many.y[:, 0, 0])) == 20
    monkeypatch.setattr(network, "CEILING", 6 * 3 * 72 * 4)  # queries and keys of both heads are larger than a matrix
    parts = list(network.stream(KEY, layer, inputs, 20, 2))
    assert [len(part.y) for part in parts] == [6, 6, 6, 2]
    for networks in (20, 7):
        for got, expected in zip(network.simulate(KEY, layer, inputs, networks, 2), many, strict=True):
            np.testing.assert_allclose(got, expected[:networks], rtol=1e-5, atol=1e-6)
    assert not np.allclose(network.simulate(jax.random.key(1), layer, inputs, 20, 2).y, many.y)


def test_batches_shrink_with_the_largest_matrix_and_never_vanish():
    sizes = [network.batch_size(Architecture(), width, 1, 8) for width in (16, 64, 1024, 2**14)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] * 3 * 16 * 16 * 4 <= network.CEILING < (sizes[0] + 1) * 3 * 16 * 16 * 4
    assert sizes[-1] == 1
    assert network.batch_size(Architecture(head_dim=64), 16, 1, 8) == sizes[0] // 4
    assert network.batch_size(Architecture(), 16, 32, 8) == sizes[0] // 2
    assert network.batch_size(Architecture(heads=256), 256, 1, 8) == network.batch_size(Architecture(), 256, 1, 8) // 8
    with pytest.raises(InputError, match="width: expected weights of at most"):
        network.batch_size(Architecture(), 2**20, 1, 8)


def test_a_first_token_under_a_causal_mask_is_alone():
    """Its outputs are those of a network with the same weights and no other token."""
    layer = PLAIN.replace(mask="causal")
    y, alone = (network.simulate(KEY, layer, x, 10, 3).y for x in (X, X[:1]))
    assert y.shape == (10, 4, 3)
    np.testing.assert_allclose(y[:, :1], alone, rtol=1e-4, atol=1e-6)
    assert not np.allclose(y[:, 1:2], alone, atol=0.1)


def test_scores_are_those_behind_the_outputs():
    """A bias that takes them away leaves uniform attention."""
    p, y = network.simulate(KEY, PLAIN, X, 1, 3)
    assert p.shape == (1, 2, 4, 4)
    uniform = network.simulate(KEY, PLAIN.replace(sigma_q=0.0), X, 1, 3).y
    np.testing.assert_allclose(network.simulate(KEY, PLAIN.replace(bias=-p[0]), X, 1, 3).y, uniform, atol=1e-5)
    assert not np.allclose(y, uniform, atol=0.01)


def test_an_infinite_head_dim_is_the_width():
    infinite, equal = (network.simulate(KEY, Architecture(heads=2, head_dim=d), X, 5, 2).y for d in (None, 7))
    np.testing.assert_array_equal(infinite, equal)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"networks": 0}, "networks: expected a positive whole number, got 0"),
        ({"networks": 2.0}, "networks: expected a positive whole number, got 2.0"),
        ({"coordinates": True}, "coordinates: expected a positive whole number, got True"),
        ({"inputs": np.ones(7)}, "inputs: expected RandomInputs, or finite numbers of shape (tokens, width), got shape (7,)"),
        ({"inputs": np.full((4, 7), np.nan)}, "inputs: expected RandomInputs, or finite numbers"),
        ({"inputs": np.ones((0, 7))}, "inputs: expected RandomInputs, or finite numbers"),
        ({"inputs": "clip"}, "inputs: expected an array of numbers, got str"),
        ({"query_inputs": np.ones((3, 8))}, "query_inputs: expected the width 7 of the inputs, got 8"),
        ({"inputs": RandomInputs(7), "query_inputs": X_Q}, "query_inputs: expected None with random inputs, got an array; use"),
        ({"layer": PLAIN.replace(mask=np.ones((3, 3), bool))}, "mask: expected shape (4, 4) (queries, keys), got (3, 3)"),
        ({"layer": PLAIN.replace(bias=np.ones((3, 3)))}, "bias: expected shape (4, 4) (queries, keys) or one per head"),
        ({"layer": PLAIN.replace(mask="causal"), "query_inputs": X_Q}, "mask: expected a boolean (queries, keys) array"),
        (
            {"layer": Architecture(rotary=np.ones(2))},
            "width: expected a multiple of 4, two coordinates a rotary",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    usual = {"layer": PLAIN, "inputs": X, "networks": 2}
    with pytest.raises(InputError) as raised:
        network.simulate(KEY, **(usual | arguments))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
