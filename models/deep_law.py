"""The infinite-width law of a stack: attention layers and MLPs, norms and residual gains (docs/theory.md, section 8).

G_0                         the kernel of the embedded tokens
p_l | G_{l-1}, score_scale  ~ N(0, score_scale^2 K (x) K), K = norm(G_{l-1})     scores of layer l, one set a network and head
G_l                         skip^2 G_{l-1} + gain^2 value_scale^2 H^{-1} sum_a A_a K A_a' + the MLP's kernel, A = softmax(p_l)
y | G_L                     ~ N(0, G_L)                                          coordinates of the last stream

One score_scale and one value_scale for all layers. A stack of one block without skip is the model limit_law.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpyro
from numpyro.handlers import reparam
from numpyro.infer.reparam import TransformReparam

from hierattn.base.errors import unusable
from hierattn.law.distributions import Gaussian, Scores
from hierattn.law.law import Law
from hierattn.law.plates import choose, observe, plates
from hierattn.layer.kernels import factor
from hierattn.models.limit_law import priors
from hierattn.stack.blocks import MLP
from hierattn.stack.branches import perceive
from hierattn.stack.frame import Frame, drawn
from hierattn.stack.stack import Stack, enter

__all__ = ["model", "priors"]


def model(
    stack: Stack,
    outputs: Any = None,
    networks: int = 1,
    coordinates: int = 1,
    prior: dict | None = None,
) -> None:
    """Scores p_1, p_2, ... are sampled non-centred; gram_1, gram_2, ... keep the Gram matrices G_l of every network.

    The stack's own scales of scores and values give way to those that are drawn; its width is taken to infinity.
    """
    check(stack)
    prior, stack = choose(priors(), prior), stack.at_infinite_width()
    q, o = (numpyro.sample(name, prior[name]) for name in ("score_scale", "value_scale"))
    network, coordinate, y = plates(outputs, stack.tokens, networks, coordinates)
    frame = enter(None, stack, network.size)
    with network:
        for k, block in enumerate(stack.blocks, 1):
            output, normed = partial(_output, k, q, o), partial(Frame.normed, norm=block.norm)
            frame = block.through(frame, output, normed, Frame.plus)
            numpyro.deterministic(f"gram_{k}", frame.gram)
        observe(Gaussian(jnp.linalg.cholesky(frame.normed(stack.final_norm).gram), None), coordinate, y)


def _output(k: int, q: Any, o: Any, branch: Any, seen: Frame, stream: Frame) -> Frame:
    """Of attention in block k, whose scores are drawn, or of an MLP."""
    if isinstance(branch, MLP):
        return stream.at(drawn(None, stream, perceive(None, branch, seen.F)))
    law = Law.from_factors(branch.with_scales(q, o), seen.F)
    with reparam(config={f"p_{k}": TransformReparam()}):
        p = numpyro.sample(f"p_{k}", Scores(law))
    return stream.at(drawn(None, stream, law.factor(p)))


def check(stack: Stack) -> None:
    """Refuse what has no such law, or no density."""
    for block in stack.blocks:
        layer = block.attention
        if layer is not None and layer.head_dim is not None:
            raise unusable("head_dim", "None: values are averaged", layer.head_dim, "sample the stack, which knows it")
    embedding = stack.embedding
    rank = factor(embedding.gram if embedding.kernel is None else embedding.kernel).shape[1]
    if rank < stack.tokens:
        got = f"rank {rank} of {stack.tokens} tokens"
        raise unusable("embedding", "tokens of which none is determined by others", got)
