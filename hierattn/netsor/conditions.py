"""The theorem's conditions (paper, Assumption 3.1). Whoever breaks one is told which, where, and what to do.

fresh score matrices    matrices of dot products are used for nothing else, though several dot products may share one
two matrices            the two factors of a dot product are products W x with different matrices
no transposes           a matrix acts from the left, as itself
no feedback             what depends on a dot product ends the program: it enters no product and no dot product
coordinatewise, pseudo-Lipschitz      of functions: see hierattn/coordinatewise.py
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from hierattn.base.errors import InputError, unusable
from hierattn.netsor.variables import MatMul


def _broken(condition: str, where: Any, expected: str, got: Any, remedy: str) -> InputError:
    return unusable(str(where), f"{expected} ({condition})", got, remedy)


def check_vectors(operation: str, families: Sequence[Any]) -> None:
    """Operations on vectors get vectors, and none that depends on scalars."""
    for f in families:
        kind = type(f).__name__
        if kind in ("Outputs", "Scalars"):
            remedy = "end the program there; functions of scalars are made by output(phi, ...)"
            raise _broken("no feedback", operation, "vectors that depend on no dot product", f, remedy)
        if kind != "Vectors":
            raise unusable(operation, "vectors", f"{f} of type {kind}", "multiply first: W @ x")


def check_product(W: Any, x: Any) -> None:
    """W x of a vector."""
    if isinstance(x, type(W)):
        raise unusable(f"{W} @ {x}", "a vector on the right", "a matrix", f"write {W} @ ({x} @ x)")
    check_vectors(f"{W} @", (x,))


def refuse_transpose(expression: str) -> NoReturn:
    """A matrix acts from the left, as itself."""
    raise _broken("no transposes", expression, "a matrix that acts from the left", "its transpose", "use a fresh matrix")


def check_scalars(scalars: Any) -> None:
    """The two factors of a dot product are products, with different matrices."""
    for p in scalars.atoms.flat:
        if not (isinstance(p.left, MatMul) and isinstance(p.right, MatMul)):
            raise _broken("two matrices", scalars, "factors W x", "one that is no product", "multiply it by a fresh matrix")
        if p.left.W is p.right.W:
            raise _broken("two matrices", scalars, "two different matrices", f"{p.left.W.name} twice", "use a second one")


def check_arguments(name: str, arguments: Sequence[Any]) -> None:
    """Outputs are functions of vectors and scalars, at least one vector."""
    kinds = [type(f).__name__ for f in arguments]
    if "Vectors" not in kinds or not set(kinds) <= {"Vectors", "Scalars"}:
        raise unusable(name, "vectors, and scalars if any", ", ".join(kinds) or "nothing", "an output has coordinates")


def check_program(program: Any) -> None:
    """Names tell variables apart; matrices of scores are in no product but theirs."""
    names = [*(f.form for f in program.families if not f.parts), *program.names.values()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise unusable("names", "a name of its own for every variable", f"{twice} twice", "rename one")
    owners = {g.W: f for f in program.scalars for p in f.atoms.flat for g in (p.left, p.right)}
    factors = {g for p in program.dots for g in (p.left, p.right)}
    for f in program.families:
        for g in f.atoms.flat:
            if isinstance(g, MatMul) and g.W in owners and g not in factors:
                where, scores = f.text(program.names), owners[g.W].text(program.names)
                expected, got = f"{g.W.name} to be used in {scores} alone", f"another product with {g.W.name}"
                raise _broken("fresh score matrices", where, expected, got, "use a fresh matrix")
