"""Inputs of a finite network: the paper's random ones, described, or observed ones."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax

from hierattn.base.errors import unusable
from hierattn.layer.activations import Activation, Function, lookup

ALWAYS_LINEAR = 60.0  # |W h| of a unit Gaussian h passes this with probability 1e-26 at width 1, and less beyond


@dataclass(frozen=True)
class RandomInputs:
    """Inputs x^i = phi(W^i h) of a network of width n: h ~ N(0, I_n), a fresh n x n matrix W^i for every token (THEORY 1).

    - width: n
    - tokens: tokens of the sequence; with cross-attention those of keys and values
    - activation: phi: a name or any function of one coordinate
    - queries: tokens of the queries where they differ (cross-attention), made from the same h
    """

    width: int
    tokens: int = 4
    activation: str | Activation | Function = "clip"
    queries: int | None = None

    def __post_init__(self) -> None:
        for name in ("width", "tokens", "queries"):
            value: Any = getattr(self, name)
            if value is None and name == "queries":
                continue
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise unusable(name, "a positive whole number", repr(value))
            object.__setattr__(self, name, int(value))
        object.__setattr__(self, "activation", lookup(self.activation))
        try:
            drawable = jax.eval_shape(self.phi, jax.ShapeDtypeStruct((2, 3), "float32")).shape == (2, 3)
        except (TypeError, ValueError):
            drawable = False
        if not drawable:
            remedy = "write it with jax.numpy"
            raise unusable("activation", "a function of JAX arrays, coordinate by coordinate", self.phi, remedy)

    @property
    def phi(self) -> Function:
        """The activation's function."""
        return lookup(self.activation).phi

    @property
    def linear(self) -> bool:
        """Is phi the identity wherever preactivations fall?"""
        return lookup(self.activation).linear_within >= ALWAYS_LINEAR

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.queries or self.tokens, self.tokens
