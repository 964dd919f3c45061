"""Numbers told of a stack, against explicit networks' own coordinates and closed forms."""

import jax
import numpy as np
import pytest

from hierattn import MLP, Architecture, Block, Embedding, InputError, Norm, Stack
from hierattn.finite.explicit_stack import explicit_streams
from hierattn.stack.summary import look, summary_of
from tests.stack.compared import gram_of
from tests.statistics import within

NETWORKS = 1024
BLOCK = Block(attention=Architecture(heads=1, head_dim=2, sigma_q=3.0), norm=Norm(eps=0.1))
LAYERED = Block(
    attention=Architecture(heads=1, head_dim=2, sigma_q=3.0),
    mlp=MLP(width=6, sigma_bias_out=0.5),
    norm=Norm(kind="layer", eps=0.1),
    placement="post",
)


def told(stack, networks=NETWORKS, token=-1):
    """The summary of a stack's draws."""
    return summary_of(stack, [look(stack, part, token) for part in stack.stream(jax.random.key(0), networks)])


@pytest.mark.parametrize("block", [pytest.param(BLOCK, id="rms", marks=pytest.mark.slow), pytest.param(LAYERED, id="layer")])
def test_kurtosis_is_that_of_coordinates(block):
    """Of explicit streams: a mean over coordinates a network, whose error is the spread over networks."""
    stack = Stack(width=6, embedding=Embedding.independent(3), blocks=[block])
    found = told(stack)
    X = np.asarray(explicit_streams(jax.random.key(1), stack, 4 * NETWORKS))[:, :, -1]
    second, fourth = (X**2).mean(axis=-1), (X**4).mean(axis=-1)
    kurtosis = fourth.mean(axis=0) / second.mean(axis=0) ** 2 - 3
    each = fourth / second.mean(axis=0) ** 2 - 2 * fourth.mean(axis=0) * second / second.mean(axis=0) ** 3
    error = np.hypot(found["kurtosis_error"], each.std(axis=0) / len(X) ** 0.5)
    assert within(found["kurtosis"], kurtosis, error)
    assert np.all(
        np.abs(np.asarray(found["kurtosis"])[1:] - kurtosis[1:] - 3) > 5 * error[1:]
    )  # a Gaussian's 3 left in is seen


def test_kurtosis_of_embeddings_and_of_normed_tokens_is_known():
    """0 of Gaussian embeddings; -6 / (n + 2) after RMSNorm, -6 / (n + 1) after LayerNorm."""
    for kind, known in (("rms", -6 / 10), ("layer", -6 / 9)):
        norm = Norm(kind=kind, eps=0.0)
        block = Block(attention=Architecture(head_dim=2), norm=norm, placement="post")
        found = told(Stack(width=8, embedding=Embedding.independent(3), blocks=[block]))
        assert within(found["kurtosis"][0], 0, found["kurtosis_error"][0])
        assert np.isclose(found["kurtosis"][1], known)


def test_numbers_of_gram_matrices():
    stack = Stack(width=6, embedding=Embedding.of_tokens([1, 2, 1]), blocks=[BLOCK], final_norm=Norm())
    part = stack.sample(jax.random.key(0), 5)
    found = look(stack, part, 0)
    trace, largest = np.einsum("mlii->ml", part.gram), np.linalg.eigvalsh(part.gram)[..., -1]
    assert np.allclose(found.norm, part.gram[:, :, 0, 0])
    assert np.allclose(found.effective_rank, trace**2 / (part.gram**2).sum(axis=(2, 3)))
    assert np.allclose(found.beyond_rank_one, 1 - largest / trace, atol=1e-12)
    assert np.allclose(found.apart, part.apart.sum(axis=(2, 3)) / 6)
    assert np.allclose(part.apart[:, 0, 0, 2], 0, atol=1e-30)  # a token twice
    assert found.norm.shape == (5, 3)


@pytest.mark.parametrize("norm", [None, Norm(kind="layer", eps=0.1)])
def test_kurtosis_of_a_branch_that_is_the_whole_stream(norm):
    """Without skip: attention's in the first block, the MLP's in the second; nothing where there is no such branch."""
    how = {"skip": 0.0, "norm": norm, "placement": "sandwich" if norm else "none"}
    blocks = [Block(attention=BLOCK.attention, **how), Block(mlp=MLP(width=6, sigma_bias=0.5), **how)]
    found = told(Stack(width=6, embedding=Embedding.independent(3), blocks=blocks))
    for k, name in ((1, "attention"), (2, "mlp")):
        own = found[f"kurtosis_{name}"]
        assert np.isclose(own[k], found["kurtosis"][k], rtol=1e-9)
        assert np.isclose(found[f"kurtosis_{name}_error"][k], found["kurtosis_error"][k], rtol=1e-9)
        assert own[0] is own[3 - k] is None


def test_weights_are_those_of_scores():
    """One layer of infinite width, independent tokens: scores are independent normals, here drawn in NumPy."""
    layer = Architecture(heads=2, sigma_q=2.0)
    stack = Stack(width=None, embedding=Embedding.independent(5), blocks=[Block(attention=layer, norm=Norm(eps=0.0))])
    found = told(stack)
    w = np.exp(2 * np.random.default_rng(0).normal(size=(NETWORKS, 2, 5, 5)))
    w /= w.sum(axis=-1, keepdims=True)
    for name, each in (("entropy", -(w * np.log(w)).sum(axis=-1)), ("largest", w.max(axis=-1))):
        known = each.mean(axis=(1, 2))
        assert within(found[name][1], known.mean(), np.hypot(found[f"{name}_error"][1], known.std() / NETWORKS**0.5))
        assert np.isclose(found[f"{name}_spread"][1], known.std(), rtol=0.15)
    assert found["entropy"][0] is None
    ended = told(stack.replace(final_norm=Norm()), 2)  # nothing attends after the last block
    assert [value is None for value in ended["largest"]] == [value is None for value in ended["entropy"]] == [True, False, True]
    uniform = stack.replace(blocks=[Block(attention=layer.replace(sigma_q=0.0, mask="causal"), norm=Norm())])
    assert np.isclose(told(uniform, 2)["entropy"][1], np.log([1, 2, 3, 4, 5]).mean())
    assert np.isclose(told(uniform, 2)["largest"][1], (1 / np.arange(1, 6)).mean())


def test_errors_are_those_of_networks():
    """Means of many small samples spread as their errors say."""
    stack = Stack(width=6, embedding=Embedding.independent(3), blocks=[BLOCK])
    part = stack.sample(jax.random.key(0), 2048)
    each = [summary_of(stack, [look(stack, type(part)(*(x[k : k + 64] for x in part)))]) for k in range(0, 2048, 64)]
    for name in ("cosine", "effective_rank", "kurtosis"):
        values, errors = (np.array([one[key][1] for one in each]) for key in (name, f"{name}_error"))
        assert 0.6 < values.std(ddof=1) / np.sqrt((errors**2).mean()) < 1.6, name


def test_given_inputs_have_no_kurtosis_and_mistakes_are_named():
    stack = Stack(width=6, embedding=Embedding.given(np.eye(3, 6)), blocks=[BLOCK])
    assert "kurtosis" not in told(stack, 4)
    with pytest.raises(InputError, match="networks: expected at least 2"):
        told(stack, 1)
    with pytest.raises(InputError, match="token: expected a number from 0 to 2"):
        told(stack, 2, 3)


def test_explicit_streams_have_the_shape_of_the_chain():
    stack = Stack(width=6, embedding=Embedding.independent(3), blocks=[BLOCK] * 2, final_norm=Norm())
    assert gram_of(explicit_streams(jax.random.key(0), stack, 2)).shape == stack.sample(jax.random.key(0), 2).gram.shape
    with pytest.raises(InputError, match="width: expected a finite width"):
        explicit_streams(jax.random.key(0), stack.at_infinite_width())
