"""Two deterministic recursions: two numbers a layer, whole Gram matrices, and the draws whose limit they are."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from hierattn import MLP, Architecture, Block, Embedding, InputError, Norm, Stack
from hierattn.law.joint_moments import mean_of_tokens
from hierattn.numerics import rqmc
from hierattn.numerics.softmax_integrals import overlap
from hierattn.stack.recursions import infinite_heads as recursion
from hierattn.stack.recursions.infinite_heads import infinite_heads
from hierattn.stack.recursions.mean_field import Exchangeable, attended, mean_field, random_energy
from tests.statistics import mean_agrees, within

LAYER = Architecture(heads=2, sigma_q=1.5)
BLOCK = Block(attention=LAYER, mlp=MLP(activation="relu", sigma_bias=0.3), norm=Norm(eps=0.1), mlp_gain=0.5, skip=0.9)
EQUAL = Embedding(kernel=0.3 + 0.7 * np.eye(3))
STACK = Stack(width=None, embedding=EQUAL, blocks=[BLOCK], final_norm=Norm())


@pytest.mark.slow
def test_two_numbers_are_those_of_whole_matrices(monkeypatch):
    """Attention sees the embedding, with a norm or without one: each integral is done once."""

    def of_tokens(law, seed):
        numbers = law.L_k @ law.L_k.T, law.layer.score_scale, law.layer.value_scale
        key = (*(np.asarray(x).tobytes() for x in numbers), seed)
        if key not in done:
            done[key] = mean_of_tokens(law, seed)
        return done[key]

    done = {}
    monkeypatch.setattr(rqmc, "BUDGET", 2**25)  # an error of 2e-6, a tenth of what is told apart
    monkeypatch.setattr(recursion, "mean_of_tokens", of_tokens)
    for placement in ("pre", "post", "parallel", "sandwich", "branch"):
        stack = STACK.replace(blocks=[replace(BLOCK, placement=placement)])
        known = [x.v * np.eye(3) + x.k * (1 - np.eye(3)) for x in mean_field(stack)]
        assert np.allclose(infinite_heads(stack), known, rtol=0, atol=2e-5), placement
    assert len(done) == 2


def test_one_layer_is_the_mean_of_draws_whatever_the_heads():
    stack = Stack(width=None, embedding=EQUAL, blocks=[replace(BLOCK, mlp=None)])
    gram = stack.sample(jax.random.key(0), 4096).gram[:, 1]
    known = mean_field(stack)[1]
    assert mean_agrees(gram, known.v * np.eye(3) + known.k * (1 - np.eye(3)))
    wrong = attended(LAYER, Exchangeable(1 / 1.1, 0.3 / 1.1), 3, lambda *_: (1 / 3, 1 / 3))  # uniform attention
    assert not mean_agrees(gram[:, 0, 0], 0.81 + wrong.v)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_given_inputs_keep_their_means(kind):
    """Without attention nothing is random at infinite width: the recursion is the chain, whose LayerNorm takes means off."""
    block = Block(mlp=MLP(activation="relu"), norm=Norm(kind=kind, eps=0.1))
    given = Embedding.given(0.7 + np.random.default_rng(0).normal(size=(3, 5)))
    stack = Stack(width=None, embedding=given, blocks=[block] * 2, final_norm=block.norm)
    np.testing.assert_allclose(infinite_heads(stack), stack.sample(jax.random.key(0)).gram[0], rtol=1e-9)
    if kind == "layer":
        alike = Stack(width=None, embedding=Embedding.given(np.eye(3)), blocks=[block])
        with pytest.raises(InputError, match="embedding: expected tokens of mean zero"):
            mean_field(alike)


def test_many_heads_tend_to_it():
    stack = Stack(width=None, embedding=EQUAL, blocks=[replace(BLOCK, mlp=None)] * 2)
    spread = [
        stack.replace(blocks=[replace(b, attention=LAYER.replace(heads=H)) for b in stack.blocks])
        .sample(jax.random.key(0), 512)
        .gram[:, 2, 0, 1]
        .std()
        for H in (1, 16)
    ]
    assert np.isclose(spread[0] / spread[1], 4, rtol=0.3)


@pytest.mark.parametrize(("m", "tau", "rho"), [(4, 1.0, 0.3), (16, 2.0, 0.5), (64, 5.0, 0.7), (3, 0.5, 0.0)])
def test_overlap_against_drawn_rows(m, tau, rho):
    shared, *own = np.random.default_rng(0).normal(size=(3, 50_000, m))
    w = [np.exp(tau * (np.sqrt(rho) * shared + np.sqrt(1 - rho) * e)) for e in own]
    a, b = (x / x.sum(axis=1, keepdims=True) for x in w)
    drawn, (value, error) = (a * b).sum(axis=1), overlap(m, tau, rho)
    assert mean_agrees(drawn, value)
    assert error < 1e-9
    assert not mean_agrees(drawn, overlap(m, tau, rho + 0.2)[0])


def test_overlap_at_its_ends():
    assert np.isclose(overlap(8, 1.3, 1 - 1e-9)[0], overlap(8, 1.3, 1.0)[0], rtol=1e-8)
    assert np.isclose(overlap(8, 1.3, 0.0)[0], 1 / 8, rtol=1e-12)  # independent rows: E w_j = 1 / m each
    assert overlap(5, 0.0, 0.4) == (0.2, 0.0)


@pytest.mark.parametrize(("s", "known"), [(10**2, 0.600), (10**4, 0.559), pytest.param(10**6, 0.543, marks=pytest.mark.slow)])
def test_limit_of_many_tokens(s, known):
    """Section 13's values: beta = 2 at c = 0 has 1 - 1 / 2, and the exact number comes down to it slowly."""
    state, q = Exchangeable(1.0, 0.0), 2 * np.sqrt(2 * np.log(s))
    assert random_energy(s, q, state) == (pytest.approx(0.5), 0.0)
    assert within(overlap(s, q, 1.0)[0], known, 1e-4)
    assert random_energy(s, 0.0, state) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "stack"),
    {
        "mask": STACK.replace(blocks=[replace(BLOCK, attention=LAYER.replace(mask="causal"))]),
        "embedding": STACK.replace(embedding=Embedding.of_tokens([1, 2, 1])),
        "attention": STACK.replace(blocks=[replace(BLOCK, attention=LAYER.replace(score_function="sigmoid"))]),
    }.items(),
)
def test_tokens_that_are_not_exchangeable_are_refused(name, stack):
    with pytest.raises(InputError, match=f"^{name}: expected"):
        mean_field(stack)
