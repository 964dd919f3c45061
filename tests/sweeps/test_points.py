"""Grids and lists of points: their order, their places, their names, and what is refused."""

import itertools

import numpy as np
import pytest

from hierattn import InputError
from hierattn.sweeps.points import points_of, written


def test_a_grid_has_all_combinations_the_last_fastest():
    points = points_of({"a": [1, 2], "b": np.array([0.5, 1.0, 2.0]), "c": ["x"]})
    assert len(points) == 6
    assert [tuple(point.values()) for point in points] == list(itertools.product([1, 2], [0.5, 1.0, 2.0], ["x"]))
    assert points.dims == {"a": 2, "b": 3, "c": 1}
    for k in range(6):
        assert np.ravel_multi_index(points.place(k), points.shape) == k
    assert points.labels()["b"] == ("b", [0.5, 1.0, 2.0])


def test_points_one_by_one():
    points = points_of([{"a": 1, "mask": None}, {"a": 3, "mask": "causal"}])
    assert list(points) == [{"a": 1, "mask": None}, {"a": 3, "mask": "causal"}]
    assert points.dims == {"point": 2}
    assert points.labels() == {"a": ("point", [1, 3]), "mask": ("point", ["null", "causal"])}


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, "over: expected at least one option with its values, got none"),
        ({"a": []}, "over a: expected at least one value, got none"),
        ({"a": "causal"}, "over a: expected a list of values, got 'causal'; as in a = ['causal']"),
        ({"a": 3}, "over a: expected a list of values, got 3"),
        ({"a": [1, 2, 1.0]}, "over a: expected every point once, got 1 twice"),
        ({"a": [float("nan")]}, "over a: expected finite numbers, got nan"),
        ({"a": [object]}, "over a: expected numbers, words, or lists of them, got type"),
        ([], "over: expected a dict of lists, or a list of dicts, got []"),
        ([1], "over: expected a dict of lists, or a list of dicts, got [1]"),
        ([{"a": 1}, {"b": 1}], "over: expected points that all have a, got b"),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], "over: expected every point once, got [1, 2] twice"),
    ],
)
def test_what_is_no_grid(over, words):
    with pytest.raises(InputError) as raised:
        points_of(over)
    assert str(raised.value).startswith(words)


def test_equal_values_are_written_alike():
    assert written({"b": [1.0, 2.5], "a": (True, None)}) == written({"a": [True, None], "b": [1, 2.5]})
    assert written({"a": 1}) != written({"a": True})
