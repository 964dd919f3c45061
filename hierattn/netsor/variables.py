"""What a program is made of, one by one: matrices, vectors, dot products; what is written twice is one variable."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hierattn.layer.activations import Activation, Function


@dataclass(frozen=True, eq=False)
class Weights:
    """An n x n matrix with entries N(0, sigma^2 / n)."""

    name: str
    sigma: float


@dataclass(frozen=True, eq=False)
class Initial:
    """An initial vector: one of those that are jointly Gaussian with this covariance."""

    covariance: np.ndarray
    member: int


@dataclass(frozen=True, eq=False)
class MatMul:
    """The vector g = W x."""

    W: Weights
    x: Any


@dataclass(frozen=True, eq=False)
class Nonlin:
    """The vector phi(x, ...), coordinate by coordinate; with its dual if it has one argument."""

    phi: Function
    arguments: tuple[Any, ...]
    activation: Activation | None = None


@dataclass(frozen=True, eq=False)
class Dot:
    """The scalar n^{-1/2} <left, right>."""

    left: MatMul
    right: MatMul


matmul, nonlinear, scaled_dot = (lru_cache(maxsize=2**20)(kind) for kind in (MatMul, Nonlin, Dot))


def support(vectors: Iterable[Any]) -> list[Any]:
    """The initial vectors and products that these are functions of, in order of appearance: where Z is Gaussian."""
    found, waiting = {}, list(vectors)[::-1]
    while waiting:
        u = waiting.pop()
        if u not in found:
            found[u] = not isinstance(u, Nonlin)
            waiting += () if found[u] else u.arguments[::-1]
    return [u for u, gaussian in found.items() if gaussian]


def value_of(u: Any, known: dict[Any, Any]) -> Any:
    """The coordinates of a vector, given those of its support."""
    if u not in known:
        known[u] = u.phi(*(value_of(x, known) for x in u.arguments))
    return known[u]
