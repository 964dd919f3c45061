"""The loss of untrained networks, against logits of explicit streams and weights."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

from hierattn import Architecture, Block, Embedding, InputError, Norm, Stack
from hierattn.finite.explicit_stack import explicit_streams
from hierattn.stack.embedding import Unembedding
from hierattn.stack.families import stack_from_config
from hierattn.stack.loss import initial_losses
from tests.statistics import SIGMAS

NETWORKS = 4096
STACK = Stack(
    width=6,
    embedding=Embedding.of_tokens([5, 9, 5]),
    blocks=[Block(attention=Architecture(heads=1, head_dim=3, sigma_q=3.0), norm=Norm())],
    unembedding=Unembedding(vocabulary=5, variance=0.8),
)


def losses(stack):
    return initial_losses(jax.random.key(1), stack, stack.sample(jax.random.key(0), NETWORKS))


def apart(x, y):
    """Largest difference of means, of squares and of products of tokens, in standard errors."""

    def moments(z):
        each = np.concatenate([z, np.einsum("mi,mj->mij", z, z).reshape(len(z), -1)], axis=1)
        return each.mean(axis=0), each.std(axis=0) / len(z) ** 0.5

    (a, e), (b, f) = moments(x), moments(y)
    return np.max(np.abs(a - b) / np.hypot(e, f))


def test_losses_are_those_of_explicit_logits():
    """Three tokens, one of them twice; weights with a fifth more variance are seen, and logits that tokens do not share."""
    rng = np.random.default_rng(0)
    X = np.asarray(explicit_streams(jax.random.key(2), STACK, NETWORKS))[:, -1]
    logits = X @ (0.8**0.5 * rng.normal(size=(NETWORKS, 6, 5)))
    targets = rng.integers(0, 5, (NETWORKS, 3, 1))
    known = logsumexp(logits, axis=2) - np.take_along_axis(logits, targets, axis=2)[..., 0]
    found = losses(STACK)
    assert apart(found, known) < SIGMAS
    assert apart(losses(STACK.replace(unembedding=Unembedding(vocabulary=5, variance=0.96))), known) > SIGMAS
    assert apart(np.roll(found[:, :1], 1, axis=0) * [1, 0, 0] + found * [0, 1, 1], known) > SIGMAS


def test_small_logits_guess():
    small = STACK.replace(unembedding=Unembedding(vocabulary=1000, variance=1e-12))
    np.testing.assert_allclose(losses(small), np.log(1000), atol=1e-4)


@pytest.mark.parametrize(("tied", "vocabulary"), [({}, 11), ({"tie_word_embeddings": True}, None)])
def test_configs_say_whether_tokens_are_used_again(tied, vocabulary):
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
    stack = stack_from_config({"model_type": "llama"} | small | tied, [1, 2])
    assert (stack.unembedding and stack.unembedding.vocabulary) == vocabulary
    assert stack_from_config({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2}, [1]).unembedding is None


def test_mistakes_are_named():
    with pytest.raises(InputError, match="unembedding: expected an Unembedding"):
        losses(STACK.replace(unembedding=None))
    with pytest.raises(InputError, match="width: expected a finite width"):
        losses(STACK.at_infinite_width())
    with pytest.raises(InputError, match="vocabulary: expected a positive whole number"):
        Unembedding(vocabulary=0, variance=1.0)
    with pytest.raises(InputError, match="variance: expected a finite number"):
        Unembedding(vocabulary=5, variance=-1.0)
