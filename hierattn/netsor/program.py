"""The language: a program of the theorem (THEORY section 3), written as the paper writes it.

    h, W = vector("h"), matrix("W", i=4)              coordinates N(0, 1); four matrices W^i, entries N(0, sigma^2 / n)
    x = nonlin("relu", W @ h)                         x^i = relu(W^i h)
    p = dot(Q @ x, K @ x.at(i="j"))                   p^{i,j} = <Q x^i, K x^j> / sqrt(n)
    y = output(attend, p, V @ x.at(i="j"), axes="i")  y^i, a function of all of them, coordinate by coordinate
    Program("attention", y, x=x, p=p)                 with names for what has one

Everything is a family of variables whose axes are letters; letters that meet are one index. Families never change.
"""

from dataclasses import dataclass
from operator import add
from types import MappingProxyType
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from hierattn.base.errors import unusable
from hierattn.layer import kernels
from hierattn.layer.activations import Activation, Function, lookup
from hierattn.netsor import conditions
from hierattn.netsor.coordinatewise import check_function
from hierattn.netsor.notation import PRODUCT, SUM, VIEW, Family, fresh, index_text, program_text, together, walk
from hierattn.netsor.variables import Initial, Weights, matmul, nonlinear, scaled_dot, support, value_of


class Vectors(Family):
    """Vectors of R^n."""

    def __add__(self, other: "Vectors") -> "Vectors":
        conditions.check_vectors("+", (self, other))
        return together(Vectors, SUM, (self, other), lambda u, v: nonlinear(add, (u, v)))

    def __matmul__(self, other: Any) -> NoReturn:
        conditions.refuse_transpose(f"{self} @ {other}")


class Scalars(Family):
    """Scaled dot products."""


@dataclass(frozen=True, eq=False)
class Outputs(Family):
    """What a program ends in: phi of vectors (letters, n) and scalars (letters)."""

    phi: Function = jnp.asarray


class Matrices(Family):
    """Random n x n matrices."""

    def __matmul__(self, x: Vectors) -> Vectors:
        conditions.check_product(self, x)
        return together(Vectors, PRODUCT, (self, x), matmul)

    @property
    def T(self) -> NoReturn:
        """Refused: the theorem has no transposes."""
        conditions.refuse_transpose(f"{self}.T")


def vector(name: str, covariance: Any = 1.0, **axes: int) -> Vectors:
    """Initial vectors, coordinates i.i.d. N(0, covariance) over all indices; a number is the variance of each."""
    count = int(np.prod([1, *axes.values()]))
    C = covariance * np.eye(count) if np.ndim(covariance) == 0 else np.array(covariance)  # a copy: it tells families apart
    if kernels.check(C, f"covariance of {name}").shape != (count, count):
        raise unusable(f"covariance of {name}", f"shape {(count, count)}", C.shape)
    return fresh(Vectors, name, axes, lambda index: Initial(C, int(np.ravel_multi_index(index, tuple(axes.values())))))


def matrix(name: str, sigma: float = 1.0, **axes: int) -> Matrices:
    """Independent n x n matrices with entries N(0, sigma^2 / n), one for every index."""
    if not 0 <= sigma < np.inf:
        raise unusable(f"sigma of {name}", "a finite number that is not negative", sigma)
    return fresh(Matrices, name, axes, lambda index: Weights(name + index_text([str(i + 1) for i in index]), float(sigma)))


def nonlin(phi: str | Activation | Function, *vectors: Vectors) -> Vectors:
    """A function of vectors, coordinate by coordinate: the name of an activation, or a function of as many arrays."""
    name = phi if isinstance(phi, str) else _name(phi)
    conditions.check_vectors(name, vectors)
    activation = lookup(phi) if len(vectors) == 1 else None
    function: Any = phi if activation is None else activation.phi
    check_function(name, function, (("vector", ()),) * len(vectors))
    form = f"{name}({', '.join([VIEW] * len(vectors))})"
    return together(Vectors, form, vectors, lambda *x: nonlinear(function, x, activation))


def dot(left: Vectors, right: Vectors) -> Scalars:
    """Scalars n^{-1/2} <left, right>; both factors are products W x, with different matrices."""
    conditions.check_vectors("dot", (left, right))
    scalars = together(Scalars, "<{}, {}> / sqrt(n)", (left, right), scaled_dot)
    conditions.check_scalars(scalars)
    return scalars


def output(phi: Function, *arguments: Vectors | Scalars, axes: str = "") -> Outputs:
    """Outputs phi(vectors, scalars): arrays (letters, n) and (letters) -> (axes, n), coordinate by coordinate."""
    conditions.check_arguments(_name(phi), arguments)
    kinds = tuple(("vector" if isinstance(part, Vectors) else "scalar", part.atoms.shape) for part in arguments)
    shape = check_function(_name(phi), phi, kinds)
    if len(shape) != len(axes):
        raise unusable("axes", f"{len(shape)} letters for outputs of shape {shape}", repr(axes), "as in axes='i'")
    return Outputs(np.full(shape, None), tuple(axes), f"{_name(phi)}({', '.join([VIEW] * len(arguments))})", arguments, phi=phi)


class Program:
    """A program that ends in the outputs y, with names for what is to be printed, drawn or asked for by name. It never changes.

    - dots, base: its single scalars; the single Gaussian vectors that its outputs are made of
    - scalars, gaussians: the same as families
    """

    def __init__(self, title: str, y: Outputs | Vectors, **names: Family) -> None:
        self.title = title
        self.y = y if isinstance(y, Outputs) else Outputs(np.full(y.atoms.shape, None), y.axes, VIEW, (y,))
        self.families = tuple(walk((self.y, *names.values()), {}))
        self.scalars = tuple(f for f in self.families if isinstance(f, Scalars) and f.root is f)
        given, free = {f.root: name for name, f in names.items()}, (f"p{k or ''}" for k in range(len(self.scalars)))
        self.names = MappingProxyType({f: next(free) for f in self.scalars if f not in given} | given | {self.y: "y"})
        self.dots = tuple(dict.fromkeys(atom for f in self.scalars for atom in f.atoms.flat))
        conditions.check_program(self)
        wanted = set(support(atom for f in self.y.parts if isinstance(f, Vectors) for atom in f.atoms.flat))
        drawn = [f for f in self.families if isinstance(f, Vectors) and (f.form == PRODUCT or not f.parts)]
        self.gaussians = tuple(f for f in drawn if not wanted.isdisjoint(f.atoms.flat))
        self.base = tuple(dict.fromkeys(atom for f in self.gaussians for atom in f.atoms.flat))

    def __setattr__(self, name: str, value: Any) -> None:
        if "base" in vars(self):
            raise AttributeError(f"a program never changes: {name} cannot be set")
        object.__setattr__(self, name, value)

    def evaluate(self, p: Any, Z: Any) -> Any:
        """Outputs (letters, n) of scalars p (dot,) and coordinates Z (base, n)."""
        position, known = {atom: k for k, atom in enumerate(self.dots)}, dict(zip(self.base, Z, strict=True))

        def values(part: Family) -> Any:
            if isinstance(part, Scalars):
                return p[np.array([position[atom] for atom in part.atoms.flat])].reshape(part.atoms.shape)
            return jnp.stack([value_of(atom, known) for atom in part.atoms.flat]).reshape(*part.atoms.shape, -1)

        return self.y.phi(*map(values, self.y.parts))

    def __str__(self) -> str:
        return program_text(self)


def _name(phi: Any) -> str:
    name = getattr(getattr(phi, "phi", phi), "__name__", "phi")
    return "phi" if name == "<lambda>" else name.strip("_")
