"""Where tokens collapse, where attention freezes, and where a signal lives: a map over score scale and gain of branches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.numerics.softmax_integrals import _overlap, moments
from hierattn.stack.recursions.mean_field import Exchangeable, Overlaps, beyond, mean_field, random_energy
from hierattn.stack.stack import Stack

STEP = 0.45  # of the trapezoid rule: 1e-8, which a map does not need
COLLAPSED, FROZEN = 0.95, 0.5  # mean cosine; sum of squared weights of a row


class Map(NamedTuple):
    """The last layer of a stack in mean field, for each gain and score scale.

    - cosine: of two tokens
    - weight: mean sum of squared weights of a row in the last attention, one over its effective number of keys
    - cosine_of_limit, weight_of_limit: the same in the limit of very many tokens (Giorlandino and Goldt 2026); the weight is
      negative by as much as scores would have to grow until attention chooses
    """

    score_scales: Float[np.ndarray, " scale"]
    gains: Float[np.ndarray, " gain"]
    cosine: Float[np.ndarray, "gain scale"]
    weight: Float[np.ndarray, "gain scale"]
    cosine_of_limit: Float[np.ndarray, "gain scale"]
    weight_of_limit: Float[np.ndarray, "gain scale"]

    @property
    def fate(self) -> np.ndarray:
        """Words for each place: "collapsed", "frozen" or "alive"."""
        words = np.where(self.weight > FROZEN, "frozen", "alive")
        return np.where(self.cosine > COLLAPSED, "collapsed", words)


def trainability(stack: Stack, score_scales: Any, gains: Any, advance: Callable[[int], Any] = lambda done: None) -> Map:
    """The map of a stack whose blocks have these score scales, and whose branches have these gains.

    advance: called with the number of places just done
    """
    score_scales, gains = np.asarray(score_scales, float), np.asarray(gains, float)
    found = np.empty((4, len(gains), len(score_scales)))
    for i, gain in enumerate(gains):
        for j, scale in enumerate(score_scales):
            changed = [
                replace(
                    block,
                    attention=block.attention and block.attention.replace(sigma_q=scale, sigma_k=1.0),
                    attention_gain=gain,
                    mlp_gain=gain,
                )
                for block in stack.blocks
            ]
            found[:, i, j] = (
                *_end(stack.replace(blocks=changed), nearly_exact),
                *_end(stack.replace(blocks=changed), random_energy),
            )
            advance(1)
    return Map(score_scales, gains, *found)


def nearly_exact(tokens: int, score_scale: float, state: Exchangeable) -> tuple[float, float]:
    """y2 and y11 to 1e-8 or so, in a tenth of the time."""
    tau, rho = score_scale * (state.v * (state.v - state.k)) ** 0.5, min(state.cosine, 1.0)
    if tau == 0:
        return 1 / tokens, 1 / tokens
    one = moments(np.ones(tokens), np.zeros(tokens), np.full(tokens, tau))
    if one is None:
        raise ValueError(f"scores of scale {tau} are too wide for one grid")
    return one.mean, _overlap(tokens, tau, rho, STEP)


def _end(stack: Stack, overlaps: Overlaps) -> tuple[float, float]:
    """The last cosine, and the last attention's sum of squared weights."""
    weights = []

    def noted(tokens: int, score_scale: float, state: Exchangeable) -> tuple[float, float]:
        y = overlaps(tokens, score_scale, state)
        weights.append(beyond(tokens, score_scale, state) if overlaps is random_energy else y[0])
        return y

    return mean_field(stack, noted)[-1].cosine, weights[-1]
