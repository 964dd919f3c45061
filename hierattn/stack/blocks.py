"""What a Transformer is made of: norms, MLPs, blocks, and how tokens enter. One description for the law and for networks.

A block of placement      does to the stream x, branch by branch (attention, then MLP)
    pre                   x + c f(norm x)
    post                  norm(x + c f(x))
    sandwich              x + c norm f(norm x)
    branch                x + c norm f(x)
    parallel              x + c_a attention(norm x) + c_m mlp(norm x), both of the same x
    none                  x + c f(x)

with x multiplied by `skip` where it is added. All weights and biases are independent Gaussians (THEORY section 8).
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import jax
import numpy as np

from hierattn.base.errors import check_choice, unusable
from hierattn.layer.architecture import Architecture
from hierattn.stack.functions import function_of

NORMS = ("rms", "layer")
State = TypeVar("State")
PLACEMENTS = ("pre", "post", "sandwich", "branch", "parallel", "none")


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A norm of every token, x g / sqrt(mean of x^2 + eps); "layer" takes the mean off first.

    - kind: "rms" or "layer"
    - eps: added to the mean square
    - gain: g, the same for all coordinates, as at initialisation
    """

    kind: str = "rms"
    eps: Any = 1e-6
    gain: Any = 1.0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, NORMS)
        _check_numbers(eps=(self.eps, 0.0), gain=(self.gain, None))


@dataclass(frozen=True, kw_only=True)
class MLP:
    """A perceptron with one hidden layer: W_out phi(W_in x + b) + b_out, or with a gate, W_out (phi(W_in x) * W_gate x).

    - width: hidden units m; None takes them to infinity
    - activation: a name (see `functions`) or a function of numbers
    - gated: SwiGLU and its kin
    - sigma_in, sigma_out: weights are N(0, sigma_in^2 / n) and N(0, sigma_out^2 / m)
    - sigma_bias, sigma_bias_out: biases are N(0, sigma^2); None for no bias
    - units: hidden units that are drawn, if not all: products of tokens then fluctuate about the limit with the right
      covariance, but with the skewness of so few units; the time does not grow with the width
    """

    width: int | None = None
    units: int | None = None
    activation: Any = "gelu"
    gated: bool = False
    sigma_in: Any = 1.0
    sigma_out: Any = 1.0
    sigma_bias: Any = None
    sigma_bias_out: Any = None

    def __post_init__(self) -> None:
        for name in ("width", "units"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise unusable(name, "a positive whole number of hidden units or None", repr(value))
        if self.units is not None and self.width is None:
            raise unusable("units", "None for infinitely many hidden units", self.units, "of these none is drawn")
        function_of(self.activation)
        numbers = ("sigma_in", "sigma_out", "sigma_bias", "sigma_bias_out")
        _check_numbers(**{name: (getattr(self, name), 0.0) for name in numbers})


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a stack: attention, then an MLP, either of which may be absent.

    - attention: an `Architecture`; its head_dim and heads are those of the finite network
    - norm: of the kind that the placement asks for
    - attention_gain, mlp_gain: c, what a branch's output is multiplied by
    - skip: what the stream is multiplied by where a branch is added; 0 leaves the branch alone
    """

    attention: Architecture | None = None
    mlp: MLP | None = None
    norm: Norm | None = None
    placement: str = "pre"
    attention_gain: Any = 1.0
    mlp_gain: Any = 1.0
    skip: Any = 1.0

    def __post_init__(self) -> None:
        check_choice("placement", self.placement, PLACEMENTS)
        if self.attention is None and self.mlp is None:
            raise unusable("attention", "attention, an MLP, or both", "neither")
        if (self.norm is None) != (self.placement == "none"):
            expected = "no norm" if self.placement == "none" else "a Norm"
            raise unusable("norm", f"{expected} with placement {self.placement!r}", self.norm, "use placement none without one")
        _check_numbers(**{name: (getattr(self, name), None) for name in ("attention_gain", "mlp_gain", "skip")})

    def branches(self) -> list[tuple[str, Any, Any]]:
        """Name, description and gain of those that are there."""
        named = (("attention", self.attention, self.attention_gain), ("mlp", self.mlp, self.mlp_gain))
        return [(name, branch, gain) for name, branch, gain in named if branch is not None]

    def through(
        self,
        state: State,
        output: Callable[[Any, State, State], State],
        normed: Callable[[State], State],
        added: Callable[[State, Any, Any, State], State],
    ) -> State:
        """The stream after the block, whatever a stream is described by.

        - output: a branch's, given what it sees, for a stream that it is to be added to
        - normed: by this block's norm
        - added: a stream, what it is multiplied by, a branch's gain and output -> the stream with the branch
        """
        first = state
        for name, branch, gain in self.branches():
            seen = first if self.placement == "parallel" else state
            seen = normed(seen) if self.placement in ("pre", "sandwich", "parallel") else seen
            y = output(branch, seen, state)
            y = normed(y) if self.placement in ("sandwich", "branch") else y
            second = self.placement == "parallel" and name == "mlp" and self.attention is not None
            state = added(state, 1.0 if second else self.skip, gain, y)
            state = normed(state) if self.placement == "post" else state
        return state

    @property
    def centres(self) -> bool:
        """Does a norm take the mean off what is added?"""
        return self.norm is not None and self.norm.kind == "layer" and self.placement in ("sandwich", "branch")

    @property
    def words(self) -> str:
        """The block in a line."""
        told = self.placement + ("" if self.norm is None else f" {self.norm.kind} norm")
        if self.attention is not None:
            layer = self.attention
            told += f"; {layer.heads} heads" + ("" if layer.head_dim is None else f" of {layer.head_dim}")
            told += "" if layer.key_value_heads is None else f", {layer.key_value_heads} of keys and values"
            told += "".join(f", {name}" for name in ("mask", "rotary", "bias") if getattr(layer, name) is not None)
        if self.mlp is not None:
            mlp = self.mlp
            told += f"; {'gated ' * mlp.gated}{mlp.activation if isinstance(mlp.activation, str) else 'an'} MLP"
            told += " of infinite width" if mlp.width is None else f" of {mlp.width}"
        return told


def _check_numbers(**numbers: tuple[Any, float | None]) -> None:
    """Finite, and not below a bound; what JAX traces is not looked at."""
    for name, (value, least) in numbers.items():
        if isinstance(value, int | float) and not (np.isfinite(value) and (least is None or value >= least)):
            raise unusable(name, "a finite number" + ("" if least is None else f" of at least {least:g}"), value)


jax.tree_util.register_dataclass(Norm, ["eps", "gain"], ["kind"])
jax.tree_util.register_dataclass(
    MLP, ["sigma_in", "sigma_out", "sigma_bias", "sigma_bias_out"], ["width", "units", "activation", "gated"]
)
jax.tree_util.register_dataclass(Block, ["attention", "mlp", "norm", "attention_gain", "mlp_gain", "skip"], ["placement"])
