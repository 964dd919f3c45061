"""The chain of Gram matrices is the law of explicit stacks, drawn weight by weight from the same description."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hierattn import Architecture
from hierattn.base.errors import InputError
from hierattn.finite.explicit_stack import explicit_streams
from hierattn.numerics import rqmc
from hierattn.stack import stack as module
from hierattn.stack.blocks import MLP, PLACEMENTS, Block, Norm
from hierattn.stack.embedding import Embedding
from hierattn.stack.stack import Stack
from tests.stack.compared import NETWORKS, gram_of, p_value
from tests.statistics import LEVEL, mean_agrees
from tests.variants import variants

EPS = 0.3  # large, so that a norm without it is seen
RMS, LAYER = Norm(eps=EPS), Norm(kind="layer", eps=EPS)
REPEATED = Embedding.of_tokens([5, 9, 5], 1.0, 0.3)
ATTENTION = Architecture(heads=2, head_dim=3, sigma_q=4.0, mask="causal")
PERCEPTRON = MLP(width=12, activation="gelu", sigma_out=1.5)
BLOCK = Block(attention=ATTENTION, mlp=PERCEPTRON, norm=RMS, attention_gain=1.5, mlp_gain=0.7, skip=0.9)
STACK = Stack(width=6, embedding=REPEATED, blocks=[BLOCK] * 2, final_norm=RMS)


def with_blocks(stack, **changes):
    """The same stack with all its blocks changed."""
    return stack.replace(blocks=[replace(block, **changes) for block in stack.blocks])


def explicit_gram(stack, networks=NETWORKS):
    """Gram matrices of explicit networks."""
    return gram_of(explicit_streams(jax.random.key(1), stack, networks))


def chain_gram(stack, networks=NETWORKS):
    """Gram matrices of one stack's chain."""
    return stack.sample(jax.random.key(0), networks).gram


@pytest.fixture(scope="module")
def explicit():
    """Four times as many networks of STACK, weight by weight: drawn once for all that is held against it."""
    return explicit_gram(STACK, 4 * NETWORKS)


# branches so large that a norm of them is seen: every one of 13 mistakes in placements, skips and gains has p < 1e-8
LOUD = replace(BLOCK, attention=ATTENTION.replace(sigma_v=3.0), mlp=replace(PERCEPTRON, sigma_out=4.0))
VARIANTS = {
    "a token twice: sandwich, branch, none": STACK.replace(
        embedding=Embedding.of_tokens([5, 9, 5], 3.0),
        blocks=[
            replace(LOUD, mlp=None, placement="sandwich"),
            replace(LOUD, attention=ATTENTION.replace(sigma_q=1.0, sigma_v=0.5), mlp=None, placement="branch", skip=0.5),
            Block(mlp=PERCEPTRON, placement="none", skip=0.9),
        ],
    ),
    "width below tokens": Stack(
        width=3,
        embedding=Embedding.of_tokens([1, 2, 3, 4, 1], 1.0, 0.2, [0, 0, 0, 1, 1], 0.3, norm=LAYER),
        blocks=[
            Block(
                attention=ATTENTION.replace(key_value_heads=1, head_dim=2),
                mlp=MLP(width=3, activation="silu", gated=True, sigma_bias=0.5, sigma_bias_out=0.3),
                norm=LAYER,
            )
        ]
        * 2,
        final_norm=LAYER,
    ),
}
SELDOM = {
    "inputs given: parallel, post, LayerNorm": Stack(
        width=8,
        embedding=Embedding.given(3 * np.random.default_rng(0).normal(size=(3, 8))),
        blocks=[
            replace(LOUD, norm=LAYER, placement="parallel", attention_gain=3.0, skip=0.5),
            replace(LOUD, attention=LOUD.attention.replace(head_dim=4, rotary=[1.0, 0.1]), norm=LAYER, placement="post"),
        ],
    ),
    "none, a token twice": with_blocks(STACK, norm=None, placement="none").replace(
        final_norm=None, embedding=Embedding.of_tokens([5, 9, 5])
    ),
    "inputs given, rotary": Stack(
        width=8,
        embedding=Embedding.given(np.random.default_rng(0).normal(size=(3, 8))),
        blocks=[
            Block(attention=Architecture(heads=2, head_dim=4, rotary=[1.0, 0.1]), norm=LAYER),
            Block(mlp=PERCEPTRON, norm=LAYER),
        ],
    ),
}
SELDOM |= {  # two blocks of two branches, with each norm; pre with RMS is STACK itself
    f"{name}, {norm.kind}": with_blocks(STACK, norm=norm, placement=name).replace(final_norm=None if name == "post" else norm)
    for name in PLACEMENTS
    for norm in (RMS, LAYER)
    if name != "none" and (name, norm) != ("pre", RMS)
}


def test_equal_blocks_are_those_of_explicit_stacks(explicit):
    assert p_value(chain_gram(STACK), explicit[:NETWORKS]) > LEVEL


@pytest.mark.parametrize("name", variants(VARIANTS | SELDOM, ["width below tokens"]))
def test_the_chain_is_the_law_of_explicit_stacks(name):
    stack = (VARIANTS | SELDOM)[name]
    assert p_value(chain_gram(stack), explicit_gram(stack)) > LEVEL


@pytest.mark.parametrize(
    ("name", "wrong"),
    {
        "no eps": lambda stack: with_blocks(stack, norm=Norm(eps=0.0)),
        "gain 10 % off": lambda stack: with_blocks(stack, attention_gain=1.65, mlp_gain=0.77),
        "heads alike": lambda stack: with_blocks(stack, attention=ATTENTION.replace(heads=1)),
        "no mask": lambda stack: with_blocks(stack, attention=ATTENTION.replace(mask=None)),
        "tokens not repeated": lambda stack: stack.replace(embedding=Embedding.of_tokens([5, 9, 6], 1.0, 0.3)),
        "one layer less": lambda stack: stack.replace(blocks=[*stack.blocks[:1], replace(BLOCK, mlp_gain=0.0)]),
    }.items(),
)
def test_another_description_is_told_apart(name, wrong, explicit):
    assert p_value(chain_gram(wrong(STACK), 4 * NETWORKS), explicit) < LEVEL


def nothing_along(rng_key, frame, L):
    """A branch that forgets its part along the frame: no cross term."""
    Y = DRAWN(rng_key, frame, L)
    return Y.at[..., : frame.F.shape[-1]].set(0)


def another_along(rng_key, frame, L):
    """A branch with one Z too many: its own squares come from other normals than its products with the stream."""
    Y = DRAWN(rng_key, replace(frame, F=frame.F[..., :0]), L)
    return jnp.concatenate([DRAWN(rng_key, frame, L)[..., : frame.F.shape[-1]], Y], axis=-1)


DRAWN = module.drawn


@pytest.mark.parametrize("mutant", [nothing_along, another_along])
def test_a_wrong_branch_is_seen(mutant, monkeypatch, explicit):
    monkeypatch.setattr(module, "drawn", mutant)
    through = module._through.__wrapped__
    monkeypatch.setattr(module, "_through", jax.jit(lambda *arguments: through(*arguments)))  # traced anew
    assert p_value(chain_gram(STACK), explicit[:NETWORKS]) < LEVEL


def test_the_first_networks_do_not_depend_on_their_number():
    few, many = (STACK.sample(jax.random.key(3), number) for number in (3, module.MOST + 2))
    assert all(np.array_equal(a, b[:3]) for a, b in zip(few, many, strict=True))
    assert many.gram.shape == (module.MOST + 2, 4, 3, 3)
    assert many.gram.dtype == np.float64


def test_equal_shapes_are_compiled_once():
    STACK.sample(jax.random.key(0))
    before = module._through._cache_size()
    other = with_blocks(STACK, attention_gain=0.1, skip=0.5, norm=Norm(eps=0.1), mlp=replace(PERCEPTRON, sigma_in=2.0))
    other.sample(jax.random.key(0))
    assert module._through._cache_size() == before


def test_infinite_width_is_where_finite_widths_go():
    """Attention alone, identity kernel: means and spreads over networks approach those of infinite width as 1 / n."""
    block = Block(attention=Architecture(heads=1, head_dim=8, sigma_q=2.0, sigma_k=1.0), norm=Norm(eps=0.0))
    stack = Stack(width=32, embedding=Embedding.independent(3), blocks=[block] * 2)
    limit = stack.at_infinite_width().sample(jax.random.key(1), 4000).apart[:, -1, 0, 1]
    wide = [stack.replace(width=n).sample(jax.random.key(2), 4000).apart[:, -1, 0, 1] for n in (32, 128, 2048)]
    gaps = [abs(x.var() - limit.var()) for x in wide]
    assert gaps[0] > gaps[1] > gaps[2]
    assert mean_agrees(wide[-1], limit.mean() + 1e-2 * np.array([0]))


def test_one_attention_layer_at_infinite_width_is_the_single_layers_law(monkeypatch):
    """Without skip, the first layer's Gram matrix is Sigma(p) itself; the second sees it as its kernel."""
    from hierattn import Law

    monkeypatch.setattr(rqmc, "BUDGET", 2**24)  # an error of 5e-5, where that of draws is some 2e-3
    layer = Architecture(heads=2, sigma_q=1.5)
    stack = Stack(width=None, embedding=Embedding.independent(3), blocks=[Block(attention=layer, placement="none", skip=0.0)])
    gram = stack.sample(jax.random.key(0), 4000).gram
    assert np.array_equal(gram[:, 0], np.broadcast_to(np.eye(3), (4000, 3, 3)))
    assert mean_agrees(gram[:, 1], np.asarray(Law(layer, np.eye(3)).infinite_heads()[0]))
    assert mean_agrees(
        gram[:, 1, 0, 0] ** 2,
        np.asarray(Law(layer, np.eye(3)).moments().excess_kurtosis / 3 + 1) * gram[:, 1, 0, 0].mean() ** 2,
    )


@pytest.mark.parametrize(
    ("name", "make"),
    {
        "width": lambda: STACK.replace(width=0),
        "blocks": lambda: STACK.replace(blocks=[]),
        "placement": lambda: replace(BLOCK, placement="before"),
        "norm": lambda: replace(BLOCK, norm=None),
        "kind": lambda: Norm(kind="batch"),
        "eps": lambda: Norm(eps=-1.0),
        "activation": lambda: MLP(activation="swish"),
        "sigma_in": lambda: MLP(sigma_in=float("nan")),
        "attention": lambda: Block(placement="none"),
        "ids": lambda: Embedding.of_tokens([0.5, 1.0]),
        "kernel": lambda: Embedding(),
        "means": lambda: Embedding(gram=np.eye(2), means=[0.0]),
        "X": lambda: Embedding.given([1.0, 2.0]),
        "rng_key": lambda: STACK.sample(0),
        "networks": lambda: STACK.sample(jax.random.key(0), 0),
    }.items(),
)
def test_mistakes_are_named(name, make):
    with pytest.raises(InputError, match=f"^{name}: expected"):
        make()
