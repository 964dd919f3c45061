"""The loss of a network that has learnt nothing: given its stream logits are Gaussian, so the loss has a law too."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.base.float64 import in_float64
from hierattn.numerics.random_numbers import normals
from hierattn.stack.branches import root
from hierattn.stack.stack import Stack, Streams


@in_float64
def initial_losses(rng_key: Array, stack: Stack, streams: Streams) -> Float[np.ndarray, "network s"]:
    """-log softmax(logits) at targets that are drawn uniformly, in nats, for every network and token.

    Logits of a network are N(0, n variance G) over its tokens, independent over the vocabulary; G is that of the last stream.
    """
    head = stack.unembedding
    if head is None:
        raise unusable("unembedding", "an Unembedding of the stack", None)
    if stack.width is None:
        raise unusable("width", "a finite width: logits grow with it", None)
    L = root(jnp.asarray(streams.gram[:, -1])) * (stack.width * head.variance) ** 0.5
    return np.asarray(_losses(jax.random.split(rng_key, len(L)), L, head.vocabulary))


@partial(jax.jit, static_argnames="vocabulary")
def _losses(keys: Array, L: Float[Array, "network s s"], vocabulary: int) -> Float[Array, "network s"]:
    return jax.lax.map(lambda x: _of_network(x[0], x[1], vocabulary), (keys, L))


def _of_network(rng_key: Array, L: Float[Array, "s s"], vocabulary: int) -> Float[Array, " s"]:
    key_logits, key_targets = jax.random.split(rng_key)
    logits = L @ normals(key_logits, (len(L), vocabulary), L.dtype)
    targets = jax.random.randint(key_targets, (len(L), 1), 0, vocabulary)
    return logsumexp(logits, axis=1) - jnp.take_along_axis(logits, targets, axis=1)[:, 0]
