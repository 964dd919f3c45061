"""Index notation: families of variables whose axes are letters, x^i and p^{a,i,j}; how they, and programs, are written.

Letters that meet are one index: of W^i and x^{i,j} is made (W x)^{i,j}.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from hierattn.base.errors import check_counts, unusable

NONE: Mapping[Any, str] = MappingProxyType({})
PRODUCT, SUM, VIEW = "{} {}", "{} + {}", "{}"  # forms of what is made of others


@dataclass(frozen=True, eq=False)
class Family:
    """Variables with indices: `atoms` has an axis a letter; `form` and `parts` say how they were written."""

    atoms: np.ndarray = field(repr=False)
    axes: tuple[str, ...]
    form: str
    parts: tuple["Family", ...] = ()
    moved: Mapping[str, str] = NONE

    def at(self, **letters: str | int) -> Self:
        """The same variables with another letter, x.at(i="j"), or one of them, x.at(i=0)."""
        atoms, axes, moved = self.atoms, list(self.axes), {}
        for letter, new in letters.items():
            if letter not in axes:
                raise unusable("at", f"a letter of {self}", repr(letter))
            if isinstance(new, str):
                axes[axes.index(letter)] = moved[letter] = new
            else:
                atoms, moved[letter] = atoms.take(new, axes.index(letter)), str(range(self.sizes[letter])[new] + 1)
                axes.remove(letter)
        return type(self)(np.asarray(atoms, object), tuple(axes), VIEW, (self,), moved)

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every letter."""
        return dict(zip(self.axes, self.atoms.shape, strict=True))

    @property
    def root(self) -> "Family":
        """The family of which this is a view."""
        return self.parts[0].root if self.form == VIEW and self.moved is not NONE else self

    def text(self, names: Mapping["Family", str] = NONE) -> str:
        """As the paper would write it, with names for what has one."""
        return text_of(self, names)

    def __str__(self) -> str:
        return text_of(self)


def fresh(kind: type, name: str, axes: Mapping[str, int], make: Callable[[tuple[int, ...]], Any]) -> Any:
    """A family of new variables, each made from its index."""
    if any(len(letter) != 1 for letter in axes):
        raise unusable("axes", "single letters", ", ".join(axes), 'as in matrix("W", i=4)')
    check_counts(**axes)
    atoms = np.empty(tuple(axes.values()), object)
    for index in np.ndindex(atoms.shape):
        atoms[index] = make(index)
    return kind(atoms, tuple(axes), name)


def together(kind: type, form: str, families: tuple[Any, ...], make: Callable) -> Any:
    """Variables made one by one of variables whose letters meet."""
    sizes: dict[str, int] = {}
    for letter, size in (item for f in families for item in f.sizes.items()):
        if sizes.setdefault(letter, size) != size:
            lengths = f"{sizes[letter]} and {size}"
            raise unusable(form.format(*families), f"one length of the letter {letter}", lengths, "rename: x.at(i='j')")
    atoms = np.empty(tuple(sizes.values()), object)
    for index in np.ndindex(atoms.shape):
        at = dict(zip(sizes, index, strict=True))
        atoms[index] = make(*(f.atoms[tuple(at[letter] for letter in f.axes)] for f in families))
    return kind(atoms, tuple(sizes), form, families)


def walk(families: Iterable[Family], seen: dict[Family, None]) -> dict[Family, None]:
    """All families that these are made of, each after its parts."""
    for f in families:
        if f not in seen:
            walk(f.parts, seen)
            seen[f] = None
    return seen


def index_text(labels: list[str]) -> str:
    """Indices as they are printed: x^i, p^{a,i,j}."""
    return "" if not labels else f"^{labels[0]}" if len(labels) == 1 else f"^{{{','.join(labels)}}}"


def text_of(family: Any, names: Mapping[Any, str] = NONE, labels: Mapping[str, str] = NONE) -> str:
    """A family as the paper would write it, with names for what has one and other labels for its letters."""
    if family in names or not family.parts:
        return names.get(family, family.form) + index_text([labels.get(axis, axis) for axis in family.axes])
    written = []
    for part in family.parts:
        letters = {axis: family.moved.get(axis, axis) for axis in part.axes}
        words = text_of(part, names, {axis: labels.get(letter, letter) for axis, letter in letters.items()})
        enclosed = part.form == SUM and part not in names and family.form == PRODUCT
        written.append(f"({words})" if enclosed else words)
    return family.form.format(*written)


def definitions(program: Any) -> dict[Any, str]:
    """What has a name in a program, as it was written."""
    named = [f for f in program.families if f in program.names]
    return {f: text_of(f, {g: program.names[g] for g in named if g is not f}) for f in named}


def program_text(program: Any) -> str:
    """A program: what is drawn, what is defined, and how far letters run."""
    drawn: dict[str, list[str]] = {}
    for f in program.families:
        if not f.parts:
            drawn.setdefault(_distribution(f.atoms.flat[0]), []).append(text_of(f))
    lines = [f"  {', '.join(names)}  {law}" for law, names in drawn.items()]
    lines += [f"  {text_of(f, program.names)} = {words}" for f, words in definitions(program).items()]
    sizes = {letter: size for f in program.families for letter, size in f.sizes.items()}
    ranges = [f"  {', '.join(f'{letter} = 1..{size}' for letter, size in sizes.items())}"] if sizes else []
    return "\n".join([program.title, *lines, *ranges])


def _distribution(atom: Any) -> str:
    if hasattr(atom, "sigma"):
        return f"matrices, entries N(0, {atom.sigma**2:g}/n)"
    variance = atom.covariance[0, 0]
    plain = np.array_equal(atom.covariance, variance * np.eye(len(atom.covariance)))
    return "initial, coordinates " + (f"N(0, {variance:g})" if plain else "Gaussian, with a covariance over letters")
