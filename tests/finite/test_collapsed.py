"""The exact law at finite width (THEORY section 5) against networks drawn weight by weight."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture, InputError, Law, network, rotary_frequencies
from hierattn.finite import collapsed
from hierattn.finite.collapsed import FiniteWidth, given_inputs, gram_factors
from hierattn.finite.inputs import RandomInputs
from hierattn.law import one_token, sampling
from tests import explicit
from tests.statistics import same_distribution, same_joint_law
from tests.variants import variants

KEY = jax.random.key(0)
NETWORKS = 10_000
HEADS = Architecture(heads=2, sigma_q=1.5)
MASKED = HEADS.replace(mask=np.ones((4, 4), bool))  # an array, so that a causal mask needs no other compiled code
CASES = {
    "clip": (MASKED, RandomInputs(16)),
    "relu": (MASKED, RandomInputs(16, activation="relu")),
    "low rank": (HEADS.replace(head_dim=3), RandomInputs(16)),
    "causal": (MASKED.replace(mask=np.tri(4, dtype=bool)), RandomInputs(16)),
    "cross": (HEADS, RandomInputs(16, activation="relu", queries=3)),
    "rotary": (HEADS.replace(rotary=rotary_frequencies(4)), RandomInputs(16)),
    "grouped": (HEADS.replace(heads=4, key_value_heads=2), RandomInputs(16)),
    "relu with zero tokens": (HEADS, RandomInputs(2, activation="relu")),
}


class FixedGram(FiniteWidth):
    """The mutant: the Gram matrix is not random but its limit K."""

    def with_inputs(self, rng_key, networks):
        law = super().with_inputs(rng_key, networks)
        L_k, L_q = (jnp.broadcast_to(L, (networks, *L.shape)) for L in (self.limit.L_k, self.limit.L_q))
        return Law.from_factors(law.layer, L_k.astype(law.dtype), L_q.astype(law.dtype))


def same_law(x, y):
    """Outputs jointly, and the distribution over networks of their averages over coordinates."""
    covariances = [np.einsum("mic,mjc->ijm", z, z) for z in (np.asarray(x, float), np.asarray(y, float))]
    pairs = zip(*np.triu_indices(covariances[0].shape[0]), strict=True)
    return same_joint_law(x, y, np.random.default_rng(0)) and all(
        same_distribution(*(C[p] for C in covariances)) for p in pairs
    )


def explicit_outputs(layer, inputs):
    """Two coordinates of networks with random inputs, in NumPy and weight by weight."""
    rng, queries = np.random.default_rng(1), inputs.queries or 0
    phi = (lambda x: x) if inputs.linear else (lambda x: np.maximum(x, 0))
    X = explicit.draw_inputs(rng, inputs.width, queries + inputs.tokens, phi, NETWORKS)
    X_q, X = X[..., :queries, :] if queries else X, X[..., queries:, :]
    return explicit.draw(rng, layer.at_width(inputs.width), X, X_q, NETWORKS, 2)[0]


@pytest.mark.parametrize("name", variants(CASES, ["relu"]))
def test_finite_widths_against_explicit_networks(name):
    """10,000 networks, two coordinates, all tokens. At width 16 a Gram matrix that is not random shows clearly."""
    layer, inputs = CASES[name]
    y = explicit_outputs(layer, inputs)
    assert same_law(FiniteWidth(layer, inputs).sample(KEY, NETWORKS, 2), y)
    assert not same_law(FixedGram(layer, inputs).sample(KEY, NETWORKS, 2), y)


def test_more_tokens_than_coordinates_against_explicit_networks():
    inputs = RandomInputs(2, tokens=3)
    y = explicit_outputs(HEADS, inputs)
    assert same_law(FiniteWidth(HEADS, inputs).sample(KEY, NETWORKS, 2), y)
    assert not same_law(FiniteWidth(HEADS.replace(sigma_q=3.0), inputs).sample(KEY, NETWORKS, 2), y)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["clip", "relu"])
def test_larger_widths_against_explicit_networks(activation):
    """3,000 networks of width 64; their averages over 32 coordinates tell a random Gram matrix from a fixed one."""
    inputs = RandomInputs(64, activation=activation)
    y = network.simulate(jax.random.key(1), HEADS, inputs, 3000, 32).y
    assert same_law(FiniteWidth(HEADS, inputs).sample(KEY, 3000, 32), y)
    assert not same_law(FixedGram(HEADS, inputs).sample(KEY, 3000, 32), y)


def test_another_width_is_another_law():
    """The comparison sees inputs of width 20 instead of 16, with 20,000 networks."""
    layer = HEADS.replace(head_dim=16)
    y, wider = (FiniteWidth(layer, RandomInputs(n)).sample(jax.random.key(n), 2 * NETWORKS, 16) for n in (16, 20))
    assert same_law(FiniteWidth(layer, RandomInputs(16)).sample(KEY, 2 * NETWORKS, 16), y)
    assert not same_law(wider, y)


def test_given_inputs_against_explicit_networks():
    """Cross-attention with fixed inputs; inputs 10 % larger are seen."""
    layer, rng = HEADS.replace(head_dim=3), np.random.default_rng(0)
    X, X_q = rng.normal(size=(4, 6)), rng.normal(size=(3, 6))
    y, _ = explicit.draw(rng, layer, X, X_q, NETWORKS, 2)
    assert same_law(given_inputs(layer, X, X_q).sample(KEY, NETWORKS, 2), y)
    assert not same_law(given_inputs(layer, 1.1 * X, X_q).sample(KEY, NETWORKS, 2), y)


def test_given_inputs_have_the_kernel_of_their_gram_matrix():
    X = np.random.default_rng(0).normal(size=(4, 6))
    law = given_inputs(HEADS, X)
    assert law.layer.head_dim == 6
    np.testing.assert_allclose(law.K, X @ X.T / 6, rtol=1e-5, atol=1e-6)
    assert law.shape == (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "activation"), [(1, "clip"), (2, "clip"), (2, "relu")])
def test_more_tokens_than_coordinates(width, activation):
    """Gram matrices of low rank, and with relu tokens that are zero: nothing is NaN."""
    law, networks = FiniteWidth(HEADS, RandomInputs(width, activation=activation)), 8192
    G = np.asarray(law.with_inputs(KEY, networks).K)
    assert np.all(np.linalg.matrix_rank(G[:500], tol=1e-2) <= width)
    assert np.any(np.einsum("mii->mi", G) == 0) == (activation == "relu")
    for drawn in (*next(law.stream(KEY, networks)), law.sample_variances(KEY, networks)):
        assert len(drawn) == networks
        assert np.all(np.isfinite(drawn))


def shapes(inputs):
    """Of all arrays in the program for eight Gram matrices of four tokens."""
    program = str(jax.make_jaxpr(lambda key: gram_factors(key, inputs, (4,), 8))(KEY))
    return {tuple(map(int, filter(None, shape.split(",")))) for shape in re.findall(r":\w+\[([\d,]*)\]", program)}


def largest(inputs):
    return max(map(math.prod, shapes(inputs)))


def test_the_cost_of_linear_inputs_does_not_grow_with_the_width():
    assert shapes(RandomInputs(64)) == shapes(RandomInputs(2**20))
    assert largest(RandomInputs(64)) <= 8 * 16


def test_other_inputs_are_streamed_in_blocks():
    assert shapes(RandomInputs(64, activation="relu")) == shapes(RandomInputs(2**20, activation="relu"))
    assert largest(RandomInputs(64, activation="relu")) == collapsed.BLOCK * 4 * 4 * 8


def test_gram_matrices_do_not_depend_on_the_block(monkeypatch):
    """G = X X' / n in one block, and in blocks of 16 columns with 4 in the last: one column too few would be seen."""
    networks, G = 20_000, {}
    for block in (20, 16):
        monkeypatch.setattr(collapsed, "BLOCK", block)
        (L,) = gram_factors(jax.random.key(block), RandomInputs(20, 3, "relu"), (3,), networks)
        G[block] = np.einsum("irm,jrm->mij", L, L)
    first, second = G.values()
    assert same_joint_law(first, second, np.random.default_rng(0))
    assert not same_joint_law(first, second * 19 / 20, np.random.default_rng(0))


def test_equal_laws_compile_once_for_any_number_of_networks():
    stages = (sampling.scores_of, sampling.factors_of, sampling.draw_outputs)
    for stage in stages:
        stage.clear_cache()
    for q, networks in [(1.0, 10), (2.0, NETWORKS)]:
        FiniteWidth(MASKED.replace(sigma_q=q), RandomInputs(16)).sample(KEY, networks, 2)
    assert [stage._cache_size() for stage in stages] == [1, 1, 1]


@pytest.mark.parametrize("activation", variants(["clip", "relu"], ["relu"]))
def test_other_widths_need_no_other_code(activation):
    sampling.follow.clear_cache()
    one_token.draw_chunks.clear_cache()
    for width in (2**14, 2**15):
        gram_factors(KEY, RandomInputs(width, activation=activation), (4,), 8)
    assert sampling.follow._cache_size() == 1
    for width, head_dim, networks in [(32, None, 10), (64, 16, 20)]:
        layer = Architecture(heads=2, head_dim=head_dim, sigma_q=networks)
        FiniteWidth(layer, RandomInputs(width, activation=activation)).sample_variances(KEY, networks)
    assert one_token.draw_chunks._cache_size() == 1


def test_draws_do_not_depend_on_how_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 512)
    law = FiniteWidth(HEADS, RandomInputs(16, activation="relu", queries=3))
    many = law.sample(KEY, 50, 3)
    assert many.shape == (50, law.shape[0], 3)
    assert len(np.unique(many[:, 0, 0])) == 50
    assert law.sample_scores(KEY, 50).shape == (50, 2, *law.shape)
    np.testing.assert_array_equal(many[:19], law.sample(KEY, 19, 3))
    assert not np.array_equal(many, law.sample(jax.random.key(1), 50, 3))


def test_laws_to_compare_with():
    law = FiniteWidth(HEADS.replace(key_value_heads=1), RandomInputs(16, 3, "relu", queries=2))
    assert law.layer.head_dim == 16
    assert law.fixed_head_dim.layer.head_dim is None
    assert law.limit.layer.key_value_heads is None
    assert law.shape == law.limit.shape == law.fixed_head_dim.shape == (2, 3)
    np.testing.assert_allclose(law.limit.K, np.where(np.eye(3), 1 / 2, 1 / (2 * np.pi)), rtol=1e-5)
    narrow = FiniteWidth(HEADS.replace(head_dim=5), RandomInputs(16))
    assert (narrow.layer.head_dim, narrow.fixed_head_dim.layer.head_dim, narrow.limit.layer.head_dim) == (5, 5, None)
    assert repr(narrow) == "FiniteWidth(width=16, heads=2, head_dim=5, tokens=4, scaling='sqrt')"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: FiniteWidth(HEADS.replace(mask=np.ones((3, 3), bool)), RandomInputs(16)), "mask: expected shape (4, 4)"),
        (lambda: FiniteWidth(HEADS.replace(bias=np.ones((3, 3))), RandomInputs(16)), "bias: expected shape (4, 4)"),
        (lambda: FiniteWidth(HEADS.replace(rotary=np.ones(3)), RandomInputs(16)), "width: expected a multiple of 6"),
        (lambda: FiniteWidth(HEADS, RandomInputs(16)).sample(0, 3), "rng_key: expected a JAX random key, got 0"),
        (lambda: FiniteWidth(HEADS, RandomInputs(16)).sample(KEY, 0), "networks: expected a positive whole number, got 0"),
        (lambda: given_inputs(HEADS, np.ones(4)), "X: expected real inputs of shape (tokens, width)"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(InputError) as raised:
        call()
    assert words in str(raised.value)
