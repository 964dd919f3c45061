"""The deterministic recursion: a stack of infinite width whose heads are infinitely many, so that no score is left random."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.float64 import in_float64
from hierattn.law.joint_moments import mean_of_tokens
from hierattn.law.law import Law
from hierattn.stack.blocks import MLP, Block
from hierattn.stack.branches import perceive, root
from hierattn.stack.frame import Frame, drawn
from hierattn.stack.stack import Stack, enter


@in_float64
def infinite_heads(stack: Stack, seed: int = 0) -> Float[np.ndarray, "layer s s"]:
    """Gram matrices after every layer, as `Stack.sample` counts them: what its draws tend to with the number of heads.

    E[A K A'] of every layer is found by quadrature or quasi-Monte Carlo (`Law.infinite_heads`), with the head_dim of the layer;
    sharing of keys and values makes no difference.
    """
    stack = stack.at_infinite_width()
    state = enter(None, stack, 1)
    found = [state.gram[0]]
    for block in stack.blocks:
        state = _through(block, state, seed)
        found.append(state.gram[0])
    if stack.final_norm is not None:
        found.append(state.normed(stack.final_norm).gram[0])
    return np.stack([np.asarray(gram) for gram in found])


def _through(block: Block, state: Frame, seed: int) -> Frame:
    """One block: nothing is drawn, but the frame's arithmetic is that of draws at infinite width."""

    def output(branch: Any, seen: Frame, stream: Frame) -> Frame:
        B = perceive(None, branch, seen.F) if isinstance(branch, MLP) else _attended(branch, seen.F, seed)
        return stream.at(drawn(None, stream, B))

    return block.through(state, output, lambda x: x.normed(block.norm), Frame.plus)


def _attended(layer: Any, F: Array, seed: int) -> Array:
    law = Law(layer.replace(key_value_heads=None), np.asarray(F[0] @ F[0].T))
    mean, _ = mean_of_tokens(law, seed)
    return root(jnp.asarray(mean)[None])
