"""Pictures of sweeps: lines with their errors, a map of many values, and what stands where."""

import numpy as np
import pytest
import xarray as xr

from hierattn import InputError
from hierattn.reporting.sweeps import picture, quantities


def results(**dims):
    """A quantity with errors over these dims, and one with layers."""
    shape = tuple(len(values) for values in dims.values())
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    variables = {"seconds": (tuple(dims), x), "x": (tuple(dims), x), "x_error": (tuple(dims), 0 * x + 0.1)}
    variables |= {
        "rows": ((*dims, "layer"), x[..., None] + np.arange(3.0)),
        "message": (tuple(dims), np.full(shape, "", object)),
    }
    return xr.Dataset(variables, {name: np.asarray(values) for name, values in dims.items()})


def test_lines_are_the_numbers():
    found = results(heads=[1, 2, 4, 8], mask=["none", "causal"])
    assert quantities(found) == ["x", "rows"]
    ax = picture(found, "x").axes[0]
    lines = [each.lines[0].get_xydata() for each in ax.containers]
    np.testing.assert_array_equal(lines[1], np.stack([[1, 2, 4, 8], [1, 3, 5, 7]], axis=1))
    assert [text.get_text() for text in ax.get_legend().texts] == ["mask none", "mask causal"]
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "heads", "x")
    assert picture(results(gain=[0.1, 0.2, 0.3]), "x").axes[0].get_xscale() == "linear"


def test_words_along_an_axis_and_places_of_layers():
    found = results(mask=["none", "causal"])
    ax = picture(found, "rows").axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["none", "causal"]
    np.testing.assert_array_equal(ax.containers[0].lines[0].get_ydata(), [2, 3])
    assert ax.get_title() == "layer last"
    first = picture(found, "rows", {"layer": 0}).axes[0]
    np.testing.assert_array_equal(first.containers[0].lines[0].get_ydata(), [0, 1])


def test_a_map_where_there_are_many_lines():
    found = results(gain=np.linspace(0, 1, 8), score_scale=np.linspace(0.5, 4, 9))
    ax = picture(found, "x").axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("gain", "score scale")
    np.testing.assert_array_equal(np.asarray(ax.collections[0].get_array()), found["x"].values.T)


def test_more_than_two_options_need_a_place():
    found = results(a=[1, 2], b=[1, 2], c=[1, 2])
    with pytest.raises(InputError, match=r"at: expected one or two options that vary, of a, b, c, got 3; say where"):
        picture(found, "x")
    assert picture(found, "x", {"c": "2"}).axes[0].get_title() == "c 2"
