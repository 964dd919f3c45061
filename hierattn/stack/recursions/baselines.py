"""What other theories say of the same stack: each leaves something out that the chain keeps."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import InputError
from hierattn.stack.recursions.infinite_heads import infinite_heads
from hierattn.stack.recursions.mean_field import exact, mean_field, random_energy
from hierattn.stack.stack import Stack
from hierattn.stack.summary import look, summary_of

WIDTH, HEADS, LINEAR = "infinite width", "infinitely many heads", "scores scaled by 1/n"
FIELD, MANY = "mean field", "mean field of very many tokens"


def baselines(stack: Stack, rng_key: Array, networks: int, token: int = -1) -> dict[str, dict[str, list[Any]]]:
    """Name -> norm of the token and mean cosine of pairs, for each layer; those that are drawn also with their spread.

    - infinite width: what is left random are scores, and values at a finite head_dim
    - scores scaled by 1/n: no score is left at infinite width, so that attention averages
    - infinitely many heads: a recursion of Gram matrices, without any randomness
    - mean field: two numbers, where tokens are exchangeable; and its limit of very many tokens
    """
    key_width, key_linear = jax.random.split(rng_key)
    found = {}
    for name, other, key in ((WIDTH, stack.at_infinite_width(), key_width), (LINEAR, averaging(stack), key_linear)):
        told = summary_of(other, [look(other, part, token) for part in other.stream(key, networks)])
        found[name] = {key: told[key] for key in ("norm", "cosine", "cosine_spread")}
    gram = infinite_heads(stack)
    found[HEADS] = {"norm": gram[:, token, token].tolist(), "cosine": cosines(gram).tolist()}
    for name, overlaps in ((FIELD, exact), (MANY, random_energy)):
        try:
            states = mean_field(stack, overlaps)
        except InputError:  # tokens are not exchangeable
            continue
        found[name] = {"norm": [x.v for x in states], "cosine": [x.cosine for x in states]}
    return found


def averaging(stack: Stack) -> Stack:
    """The stack at infinite width with no scores: those of queries and keys that are scaled by 1/n vanish."""
    limit = stack.at_infinite_width()
    blocks = (b if b.attention is None else replace(b, attention=b.attention.with_scores_times(0.0)) for b in limit.blocks)
    return limit.replace(blocks=tuple(blocks))


def cosines(gram: Float[np.ndarray, "layer s s"]) -> Float[np.ndarray, " layer"]:
    """Mean over pairs of tokens."""
    scale = np.sqrt(np.diagonal(gram, axis1=1, axis2=2))
    i, j = np.tril_indices(gram.shape[-1], -1)
    return (gram / scale[:, :, None] / scale[:, None, :])[:, i, j].mean(axis=-1)
