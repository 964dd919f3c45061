"""While tests run, arrays of other shapes than a signature says are refused: what checks them refuses what it should."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError

from hierattn.numerics import mixtures
from tests.shapes import checked

A, B = np.ones((2, 3)), np.ones((3, 4))


def product(a: Float[np.ndarray, "n m"], b: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "n k"]:
    return a @ b if b[0, 0] else np.ones(1)


def ones(size: int, more: int = 0) -> Float[np.ndarray, " {size}"]:
    return np.ones(size + more)


def rows(a: Float[np.ndarray, "n m"]) -> Iterator[Float[np.ndarray, " m"]]:
    yield from a


def shapeless(a: np.ndarray) -> None:
    pass


@dataclass
class Pair:
    a: Float[np.ndarray, "n m"]
    b: Float[np.ndarray, "m k"]


REFUSED = {
    "an argument": (product, A, A),
    "a number of axes": (product, A, B[0]),
    "a dtype": (product, A, B.astype(int)),
    "what is returned": (product, A, 0 * B),
    "a size that is an argument": (ones, 2, 1),
    "a generator's argument": (rows, A[0]),
    "a field": (Pair, A, A),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_shapes_are_refused(name):
    function, *arguments = REFUSED[name]
    with pytest.raises((BeartypeCallHintViolation, TypeCheckError)):
        checked()(function)(*arguments)


def test_the_package_is_checked():
    with pytest.raises(BeartypeCallHintViolation):
        mixtures.compress(np.ones(2), np.ones(3))


def test_right_shapes_pass_and_nothing_else_is_touched():
    assert checked()(product)(A, B).shape == (2, 4)
    assert checked()(product)(B.T, A.T[:, :1]).shape == (4, 1)  # letters are those of one call
    assert checked()(ones)(3).shape == (3,)
    assert len(list(checked()(rows)(A))) == 2
    assert checked()(Pair)(A, B).b is B
    assert checked()(shapeless) is shapeless
