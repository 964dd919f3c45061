"""The deterministic recursion: a stack of infinite width whose heads are infinitely many, so that no score is left random."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.float64 import in_float64
from hierattn.law.joint_moments import mean_of_tokens
from hierattn.law.law import Law
from hierattn.stack.blocks import MLP, Block
from hierattn.stack.branches import perceive, root
from hierattn.stack.frame import Frame, added, drawn, normed
from hierattn.stack.stack import Stack


@in_float64
def infinite_heads(stack: Stack, seed: int = 0) -> Float[np.ndarray, "layer s s"]:
    """Gram matrices after every layer, as `Stack.sample` counts them: what its draws tend to with the number of heads.

    E[A K A'] of every layer is found by quadrature or quasi-Monte Carlo (`Law.infinite_heads`), with the head_dim of the layer;
    sharing of keys and values makes no difference.
    """
    stack = stack.at_infinite_width()
    embedding = stack.embedding
    K = embedding.kernel if embedding.kernel is not None else embedding.gram
    state = _frame(normed(root(jnp.asarray(K)[None]), embedding.norm, False))
    found = [state.gram[0]]
    for block in stack.blocks:
        state = _through(block, state, seed)
        found.append(state.gram[0])
    if stack.final_norm is not None:
        found.append(_frame(normed(state.F, stack.final_norm, False)).gram[0])
    return np.stack([np.asarray(gram) for gram in found])


def _frame(F: Array) -> Frame:
    return Frame(F, None, False)


def _through(block: Block, state: Frame, seed: int) -> Frame:
    """One block: nothing is drawn, but the frame's arithmetic is that of draws at infinite width."""
    before, key = state, jax.random.key(0)
    for name, branch, gain in block.branches():
        seen = before.F if block.placement == "parallel" else state.F
        seen = normed(seen, block.norm, False) if block.placement in ("pre", "sandwich", "parallel") else seen
        Y = drawn(key, state, perceive(key, branch, seen) if isinstance(branch, MLP) else _attended(branch, seen, seed))
        Y = normed(Y, block.norm, False) if block.placement in ("sandwich", "branch") else Y
        second = block.placement == "parallel" and name == "mlp" and block.attention is not None
        state = added(state, 1.0 if second else block.skip, gain, Y)
        state = _frame(normed(state.F, block.norm, False)) if block.placement == "post" else state
    return state


def _attended(layer: Any, F: Array, seed: int) -> Array:
    law = Law(layer.replace(key_value_heads=None), np.asarray(F[0] @ F[0].T))
    mean, _ = mean_of_tokens(law, seed)
    return root(jnp.asarray(mean)[None])
