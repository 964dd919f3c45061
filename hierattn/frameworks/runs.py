"""An attention layer as it ran in one network: what went in, what came out, and everything in between.

    y = sum_a A_a (X W^{V,a} + b_V) W^{O,a} + b_O,    A_a = softmax over allowed keys and a sink of cap(factor q_a k_a') + bias
    q_a and k_a: X W + b, normed, turned

What was found of a module is believed only if this formula, computed anew from it, gives what the module returned.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from hierattn.base.errors import InputError, unusable
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.layer.weighing import Weighing

SCORES = SCORE_FUNCTIONS["softmax"]  # of every layer that is recognised: one of another kind fails the check
FORBIDDEN = -1e4  # terms of scores from here on mean that a key must not be seen
ANGLE = 1e-5  # of frequencies that were read off turned queries in single precision
ROUNDING = 1e-3  # of outputs in single precision, relative to their size
BY_HAND = "describe it by hand: capture(..., module=NAME, layer=hierattn.Architecture(heads=..., head_dim=..., ...))"


class Linear(NamedTuple):
    """A linear map x -> x W + b, of all heads side by side."""

    W: Float[np.ndarray, "fan_in fan_out"]
    b: Float[np.ndarray, " fan_out"] | None = None


class Norm(NamedTuple):
    """What queries, or keys, are divided by: sqrt(mean square + eps), and multiplied by.

    - kind: "rms": mean square of a head's coordinates, "layer": of these less their mean, "rms_all": of all heads' coordinates
    - gain: of the coordinates of one head, or of all heads side by side
    """

    kind: str
    gain: Float[np.ndarray, " coordinate"]
    eps: float

    def of(self, x: Float[np.ndarray, "batch heads s n_H"]) -> Float[np.ndarray, "batch heads s n_H"]:
        """Normed queries, or keys."""
        if self.kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        square = np.mean(x**2, axis=(1, -1) if self.kind == "rms_all" else -1, keepdims=True)
        return x / np.sqrt(square + self.eps) * self.gain.reshape(-1, 1, x.shape[-1])

    def same(self, other: "Norm | None") -> bool:
        """Is it another one, in all numbers?"""
        return other is not None and self[::2] == other[::2] and np.array_equal(self.gain, other.gain)


@dataclass(frozen=True, eq=False)
class Run:
    """One layer of one network as it ran on a batch of sequences.

    - X_q, X: inputs of the queries, and of keys and values (the same array in self-attention)
    - y: outputs, after W^O and before anything else
    - maps: the linear maps q, k, v and o
    - factor: scores are factor <q_i, k_j>: n_H^{-1/2} in most layers, 1 in T5
    - allowed: may query i look at key j?
    - bias: added to the scores, one for all sequences
    - rotary: frequencies by which coordinates d and d + B of queries and keys are turned, B as many as there are; coordinates
      from 2 B on are left alone
    - norms: of queries and of keys, before they are turned
    - cap: soft cap of scores
    - sinks: logits of a key without a value, one for each head
    - initialisers: variances that entries of W (q, k, v, o), of biases (b_q, ...) and sinks (sink) have, if they were drawn as
      their class does by default
    """

    X_q: Float[np.ndarray, "batch q n"]
    X: Float[np.ndarray, "batch k n_k"]
    y: Float[np.ndarray, "batch q m"]
    maps: dict[str, Linear]
    heads: int
    factor: float
    allowed: Bool[np.ndarray, "batch q k"]
    bias: Float[np.ndarray, "H q k"] | None = None
    rotary: Float[np.ndarray, " B"] | None = None
    norms: tuple[Norm, Norm] | None = None
    cap: float | None = None
    sinks: Float[np.ndarray, " H"] | None = None
    initialisers: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def head_dim(self) -> int:
        """n_H, the inner dimension of a head."""
        return self.maps["q"].W.shape[1] // self.heads

    @property
    def key_value_heads(self) -> int:
        """Heads that own their W^K and W^V."""
        return self.maps["k"].W.shape[1] // self.head_dim

    @property
    def crossed(self) -> bool:
        """Do queries have inputs of their own?"""
        return self.X_q is not self.X

    def same_setting(self, other: "Run") -> bool:
        """Are heads, norms, frequencies, factor, cap, bias and mask those of another run?"""
        plain = (self.heads, self.factor, self.head_dim, self.cap) == (other.heads, other.factor, other.head_dim, other.cap)
        kept = plain and _same(self.allowed, other.allowed) and _same(self.bias, other.bias)
        kept &= _same(self.rotary, other.rotary, ANGLE)
        if self.norms is None or other.norms is None:
            return kept and self.norms is other.norms
        return kept and all(mine.same(its) for mine, its in zip(self.norms, other.norms, strict=True))


def _same(a: Any, b: Any, apart: float = 0.0) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(np.all(np.abs(np.subtract(a, b, dtype=float)) <= apart))


def outputs_of(run: Run) -> Float[np.ndarray, "batch q m"]:
    """The outputs by the formula, in float64."""
    q, k, v = (_heads_of(run.maps[name], X, run.head_dim) for name, X in zip("qkv", (run.X_q, run.X, run.X), strict=True))
    if run.norms is not None:
        q, k = (norm.of(x) for norm, x in zip(run.norms, (q, k), strict=True))
    if run.rotary is not None:
        q, k = turned(q, run.rotary), turned(k, run.rotary)
    k, v = (np.repeat(x, run.heads // run.key_value_heads, axis=1) for x in (k, v))
    sinks = None if run.sinks is None else run.sinks[:, None, None].astype(float)
    A = Weighing(run.cap, run.bias, run.allowed[:, None], sinks, None, SCORES).weights(run.factor * q @ k.swapaxes(-1, -2))
    return _applied(run.maps["o"], np.moveaxis(A @ v, 1, 2).reshape(*run.X_q.shape[:2], -1))


def turned(x: Float[np.ndarray, "*batch s n_H"], frequencies: Float[np.ndarray, " B"]) -> Float[np.ndarray, "*batch s n_H"]:
    """Turn coordinates d and d + B of the token at position i by the angle theta_d i; leave those from 2 B on alone."""
    B = len(frequencies)
    angle = np.arange(x.shape[-2])[:, None] * frequencies
    first, second, rest = x[..., :B], x[..., B : 2 * B], x[..., 2 * B :]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos, rest], axis=-1)


def check(run: Run, name: str) -> None:
    """Refuse a layer that does something else than was understood."""
    if any(x.dtype not in (np.float32, np.float64) for x in (run.X, run.y)):
        raise unusable(name, "numbers in float32 or float64", run.y.dtype, "use model.float()")
    if not run.allowed.any(axis=-1).all():
        empty = np.argwhere(~run.allowed.any(axis=-1))[0].tolist()
        raise unusable(name, "at least one key for every query", f"none for (sequence, token) {empty}", "leave padding out")
    rows, W_o = run.heads * run.head_dim, run.maps["o"].W
    if run.maps["q"].W.shape[1] != rows or run.heads % run.key_value_heads or W_o.shape[0] != rows:
        raise unusable(name, f"maps of {run.heads} heads", {key: linear.W.shape for key, linear in run.maps.items()}, BY_HAND)
    if run.rotary is not None and 2 * len(run.rotary) > run.head_dim:
        expected = f"at most {run.head_dim} coordinates turned by rotary embeddings"
        raise unusable(name, expected, 2 * len(run.rotary), BY_HAND)
    for one, other in ("qk", "qv", "kv"):
        if np.array_equal(run.maps[one].W, run.maps[other].W):
            raise unusable(
                name, "queries, keys and values with weights of their own", f"the same for {one} and {other}", BY_HAND
            )
    check_outputs(outputs_of(run), run.y, name)


def check_outputs(found: np.ndarray, y: np.ndarray, name: str) -> None:
    """Refuse outputs that are not those of the formula."""
    off, size = np.abs(found - y).max(), np.sqrt(np.mean(y.astype(float) ** 2))
    if not off <= ROUNDING * size:
        what = f"outputs that differ from them by {off / max(size, 1e-300):.2g} of their size"
        raise unusable(name, "outputs that its weights, mask and positions explain", what, f"it does more; {BY_HAND}")


def not_run(name: str) -> InputError:
    """A part that was to be watched was not called."""
    return unusable("module", "a part of the model that runs on these inputs", f"{name}, which does not", "choose another")


def mask_and_bias(added: Any, batch: int, q: int, k: int, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """What is added to the scores, (batch, head, q, k) or less, as a mask (batch, q, k) and one bias (head, q, k)."""
    added = np.asarray(added, float)
    added = np.broadcast_to(added, (batch, *np.broadcast_shapes(added.shape[-3:], (1, q, k))))
    allowed = added > FORBIDDEN
    if np.any(allowed != allowed[:, :1]):
        raise unusable(name, "one mask for all heads", "several", BY_HAND)
    bias = np.where(allowed, added, -np.inf).max(axis=0)
    bias = np.where(np.isfinite(bias), bias, 0.0)
    if np.any(allowed & (added != bias)):
        raise unusable(name, "one bias for all sequences", "several", "capture one sequence at a time")
    return allowed[:, 0], bias if bias.any() else None


def _heads_of(linear: Linear, X: np.ndarray, head_dim: int) -> Float[np.ndarray, "batch heads s n_H"]:
    x = _applied(linear, X)
    return np.moveaxis(x.reshape(*x.shape[:2], -1, head_dim), 2, 1)


def _applied(linear: Linear, X: np.ndarray) -> np.ndarray:
    x = X.astype(float) @ linear.W.astype(float)
    return x if linear.b is None else x + linear.b
