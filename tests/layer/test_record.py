"""A layer in a file: what is written is what is read; options come before it; half a description is refused."""

import json

import numpy as np
import pytest
import xarray

from hierattn import Architecture, InputError, Law, Observations, diagnose, read, rotary_frequencies
from hierattn.inference.fitting import layer_of, lookup
from hierattn.inference.problem import pose
from hierattn.inference.tree import constants
from hierattn.layer.record import arrays_of, layer_in
from hierattn.observed import fits
from hierattn.observed.inspection import describe
from tests.diagnostics import drawn

Y = drawn.law(0, 40, 16)
LAYERS = {
    "plain": Architecture(heads=2, sigma_q=1.6),
    "finite": Architecture(heads=4, head_dim=6, key_value_heads=2, sigma_q=0.5, sigma_k=2.0, sigma_v=3.0),
    "rotary, bias": Architecture(heads=2, head_dim=8, rotary=rotary_frequencies(8), bias=np.arange(32.0).reshape(2, 4, 4)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_there_and_back(tmp_path, layer):
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=np.eye(4), mask="causal", **arrays_of(layer))
    found = read(tmp_path / "y.npz")
    assert (found.heads, found.layer.head_dim, found.layer.groups) == (layer.heads, layer.head_dim, layer.groups)
    np.testing.assert_allclose(found.layer.score_scale, layer.score_scale)
    np.testing.assert_allclose(found.layer.value_scale, layer.value_scale)
    for name in ("rotary", "bias"):
        np.testing.assert_array_equal(getattr(found.layer, name), getattr(layer, name))
    assert layer_of(found).mask == "causal"
    assert layer_of(read(tmp_path / "y.npz", mask="none")).mask is None
    assert found.first(3).layer is found.layer


def test_outputs_are_held_against_the_law_of_the_file(tmp_path):
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=np.eye(4), **arrays_of(Architecture(heads=1, sigma_q=1.6, sigma_v=2.0)))
    found = diagnose(read(tmp_path / "y.npz"))
    assert (found.consistent, found.codes[0], found.subject.origin) == (False, "scale", "given")
    assert diagnose(read(tmp_path / "y.npz"), value_scale=1.0).consistent is not False
    assert layer_of(read(tmp_path / "y.npz"), head_dim=7).head_dim == 7


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"head_dim": 4, "heads": 2}, "expected score_scale, value_scale beside head_dim, got none; describe the layer wholly"),
        ({"score_scale": 1.0, "value_scale": 1.0}, "expected heads beside score_scale"),
        (
            {"score_scale": [1.0, 2.0, 3.0], "value_scale": 1.0, "heads": 2},
            "score_scale: expected one number, or 2, one for each head, got float64 of shape (3,)",
        ),
        ({"score_scale": 1.0, "value_scale": 1.0, "heads": 2, "head_dim": 2.5}, "head_dim: expected one number, got float64"),
        ({"score_scale": 1.0, "value_scale": 1.0, "heads": 2, "bias": np.ones(3)}, "bias: expected shape (queries, keys)"),
    ],
)
def test_half_a_description_is_refused(tmp_path, arrays, words):
    np.savez(tmp_path / "y.npz", outputs=Y, **arrays)
    with pytest.raises(InputError) as raised:
        layer_in(tmp_path / "y.npz")
    assert str(raised.value).startswith(f"{tmp_path}/y.npz: ")
    assert words in str(raised.value)


def test_heads_must_agree():
    with pytest.raises(InputError, match="heads: expected 2, as the layer has, got 3"):
        Observations(Y, heads=3, layer=Architecture(heads=2))
    assert Observations(Y, layer=Architecture(heads=2)).heads == 2


def test_compare_holds_outputs_against_the_described_law(run, tmp_path):
    file, layer = tmp_path / "y.npz", Architecture(heads=1, sigma_q=1.6)
    np.savez(file, outputs=Y, kernel=np.eye(4), **arrays_of(layer))
    record = json.loads(run("compare", file, "--json")[1])
    assert record["variance_law"] == pytest.approx(Law(layer, np.eye(4)).moments().variance)
    code, _, err = run("compare", file, "--heads", 2, "--score-scale", 3, "--kernel", "K.npy")
    assert code == 2
    assert (
        "expected no options for a file that describes its layer, got --heads, --score-scale, --kernel; leave them out" in err
    )
    np.savez(tmp_path / "each.npz", outputs=Y, kernel=np.tile(np.eye(4), (40, 1, 1)), **arrays_of(layer))
    code, _, err = run("compare", tmp_path / "each.npz")
    assert code == 2
    assert "expected one kernel for all networks, got one a network, or none; use hierattn diagnose" in err


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_fit_keeps_the_layer_and_inspect_shows_it(layer):
    observations = Observations(Y, np.eye(4), layer=layer)
    model = "limit_law" if layer.head_dim is None else "finite_head_dim"
    problem = pose(observations, layer_of(observations), lookup(model), None)
    kept = fits.layer_of(xarray.DataTree.from_dict({"constant_data": constants(problem)}))
    assert (kept.heads, kept.head_dim, kept.groups) == (layer.heads, layer.head_dim, layer.groups)
    for name in ("rotary", "bias"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(layer, name))
    record = describe(observations)
    assert (record["head_dim"], record["key_value_heads"]) == (layer.head_dim, layer.groups)
    assert record["score_scale"] == layer.score_scale[0]
