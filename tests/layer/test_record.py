"""A layer in a file: what is written is what is read; options come before it; half a description is refused."""

import json
from dataclasses import dataclass, fields

import numpy as np
import pytest
import xarray

from hierattn import Architecture, InputError, Law, Observations, diagnose, read, rotary_frequencies
from hierattn.diagnostics.subject import of_fit
from hierattn.inference.fitting import layer_of, lookup
from hierattn.inference.problem import pose
from hierattn.inference.tree import constants
from hierattn.layer.record import VERSION, arrays_of, layer_from, layer_in
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.observed import fits
from hierattn.observed.described import law_of
from hierattn.observed.inspection import describe
from tests.diagnostics import drawn

Y = drawn.law(0, 40, 16)
LAYERS = {
    "plain": Architecture(heads=2, sigma_q=1.6),
    "finite": Architecture(heads=4, head_dim=6, key_value_heads=2, sigma_q=0.5, sigma_k=2.0, sigma_v=3.0),
    "rotary, bias": Architecture(heads=2, head_dim=8, rotary=rotary_frequencies(8), bias=np.arange(32.0).reshape(2, 4, 4)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_observations_have_the_layer_of_their_file(tmp_path, layer):
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=np.eye(4), **arrays_of(layer.replace(mask="causal")))
    found = read(tmp_path / "y.npz")
    assert same(found.layer, layer.replace(mask="causal"))
    assert (found.heads, found.mask, layer_of(found).mask) == (layer.heads, "causal", "causal")
    assert layer_of(read(tmp_path / "y.npz", mask="none")).mask is None
    assert found.first(3).layer is found.layer


EYE = np.eye(4, dtype=bool)
FIELDS = {  # every field of a layer, at values that are not the usual ones
    "heads": [{"heads": 3}],
    "head_dim": [{"head_dim": 6}, {"head_dim": 1}],
    "key_value_heads": [{"heads": 4, "key_value_heads": 2}, {"heads": 2, "key_value_heads": 2}],
    "sigma_q": [{"sigma_q": 1.6}, {"heads": 2, "sigma_q": [1.6, 0.5]}, {"sigma_q": 0.0}],
    "sigma_k": [{"sigma_k": 0.3, "sigma_q": 3.0}, {"heads": 2, "sigma_k": [0.3, 2.0], "sigma_q": [2.0, 0.1]}],
    "sigma_v": [{"sigma_v": 1e-3}, {"heads": 4, "key_value_heads": 2, "sigma_v": [1.0, 1.0, 2.0, 2.0]}],
    "sigma_o": [{"sigma_o": 7.0}, {"heads": 4, "key_value_heads": 2, "sigma_o": [1.0, 2.0, 3.0, 4.0]}],
    "scaling": [{"scaling": "linear"}, {"scaling": "linear", "head_dim": 6}],
    "mask": [{"mask": "causal"}, {"mask": EYE}, {"mask": np.tri(4, dtype=bool)[::-1]}],
    "bias": [{"bias": np.arange(16.0).reshape(4, 4)}, {"heads": 2, "bias": np.arange(32.0).reshape(2, 4, 4)}],
    "rotary": [{"head_dim": 8, "rotary": rotary_frequencies(8)}, {"rotary": [1.0, 0.0, 0.1]}],
    "score_function": [{"score_function": name} for name in SCORE_FUNCTIONS],
    "window": [{"window": 2}, {"window": 3, "mask": "causal"}],
    "chunk": [{"chunk": 2}],
    "qk_norm": [{"qk_norm": "rms"}, {"qk_norm": "layer", "head_dim": 6}, {"qk_norm": "rms_all", "sigma_k": 3.0}],
    "qk_gain": [{"qk_norm": "rms", "qk_gain": 3.0}, {"qk_norm": "rms", "heads": 2, "qk_gain": [3.0, 0.5]}],
    "qk_eps": [{"qk_norm": "rms", "qk_eps": 0.1}, {"qk_norm": "rms", "qk_eps": 0.1, "sigma_q": 2.0, "sigma_k": 0.5}],
    "cap": [{"cap": 50.0}],
    "sink": [{"sink": 0.0}, {"heads": 2, "sink": [0.0, -1.0]}],
    "sink_scale": [{"sink": 0.0, "sink_scale": 0.02}, {"heads": 2, "sink": 0.0, "sink_scale": [0.1, 0.3]}],
}
CASES = {f"{name} {i}": Architecture(**case) for name, cases in FIELDS.items() for i, case in enumerate(cases)}
TOLD = (
    "heads",
    "head_dim",
    "key_value_heads",
    "score_scale",
    "value_scale",
    "scaling",
    "mask",
    "bias",
    "rotary",
    "score_function",
    "window",
    "chunk",
    "qk_norm",
    "qk_eps",
    "cap",
    "sink",
    "sink_scale",
)


def same(found, layer):
    """Are all fields alike? Of scales only products matter, and are kept; with an eps of norms sigma_q and sigma_k do."""
    names = (*TOLD, "sigma_q", "sigma_k") if layer.qk_eps else TOLD
    pairs = [(getattr(found, name), getattr(layer, name)) for name in names]
    return all(np.array_equal(a, b) if a is not None and b is not None else a is b for a, b in pairs)


def test_the_table_has_every_field():
    assert list(FIELDS) == [field.name for field in fields(Architecture)]
    for i, name in enumerate(FIELDS):
        assert not same(CASES[f"{name} {len(FIELDS[name]) - 1}"], Architecture()), i


@pytest.mark.parametrize("name", CASES)
def test_there_and_back_in_a_file(tmp_path, name):
    np.savez(tmp_path / "y.npz", outputs=Y, **arrays_of(CASES[name]))
    assert same(layer_in(tmp_path / "y.npz"), CASES[name])


def tree_of(layer, **posterior):
    """A fit made by hand, its constants those of the layer's record; a mask is over the kernel's tokens, as 0 and 1."""
    arrays = arrays_of(layer)
    arrays |= {"mask": np.asarray(layer.allowed(4, 4)).astype("int8")} if layer.mask is not None else {}
    constants = {name: ([f"{name}_{i}" for i in range(array.ndim)], array) for name, array in arrays.items()}
    constants |= {"K": (("kernel_token", "kernel_token_"), np.eye(4)), "tokens": ("token", np.arange(4))}
    draws = {name: (("chain", "draw"), np.full((1, 3), value)) for name, value in posterior.items()}
    observed = {"y": (("network", "token", "coordinate"), Y)}
    groups = {"constant_data": constants, "observed_data": observed, "posterior": draws, "posterior_predictive": {}}
    tree = xarray.DataTree.from_dict({name: xarray.Dataset(data) for name, data in groups.items()})
    tree.attrs |= {"model": "limit_law", "source": "y.npz", "verdict": "CONVERGED", "reasons": "[]", "parameters": "{}"}
    return tree


@pytest.mark.parametrize("name", CASES)
def test_there_and_back_in_a_fit(tmp_path, name):
    layer = CASES[name]
    tree_of(layer, score_scale=1.0).to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    tree = fits.read_fit(tmp_path / "fit.nc")
    expected = layer if layer.mask is None else layer.replace(mask=np.asarray(layer.allowed(4, 4)))
    assert same(fits.layer_of(tree), expected)
    found = fits.observations_of(tree)
    np.testing.assert_array_equal(found.S, Observations(Y).S)
    assert found.heads == layer.heads
    assert (found.mask is None) == (layer.mask is None)


def test_a_fit_is_held_against_the_law_of_its_own_score_function():
    layer = Architecture(heads=2, score_function="identity")
    law = of_fit(tree_of(layer, score_scale=1.5, value_scale=0.5), None, {"score_scale": None, "value_scale": None}, 0).law
    expected = Law(layer.with_scales(1.5, 0.5), np.eye(4)).moments(1)
    assert law.layer.score_function == "identity"
    assert law.moments(1).variance == pytest.approx(expected.variance)
    assert expected.variance != pytest.approx(
        Law(Architecture(heads=2, sigma_q=1.5, sigma_v=0.5), np.eye(4)).moments(1).variance
    )


def test_files_of_version_1_mean_what_they_meant(tmp_path):
    """No version, one scale for all heads, no words: softmax with the usual scaling."""
    old = {"heads": 2, "score_scale": 1.6, "value_scale": 0.7, "head_dim": 4, "key_value_heads": 1, "rotary": [1.0, 0.1]}
    np.savez(tmp_path / "y.npz", outputs=Y, mask="causal", **old)
    expected = Architecture(heads=2, sigma_q=1.6, sigma_v=0.7, head_dim=4, key_value_heads=1, rotary=[1.0, 0.1], mask="causal")
    assert same(layer_in(tmp_path / "y.npz"), expected)
    plain = {"heads": np.array(2), "head_dim": np.array(0), "mask": np.ones((4, 4), "int8"), "score_scale": 1.0}
    assert same(layer_from(plain | {"value_scale": 1.0}, "a fit"), Architecture(heads=2))


def test_a_newer_version_is_refused(tmp_path):
    np.savez(tmp_path / "y.npz", outputs=Y, **arrays_of(Architecture()) | {"layer_version": VERSION + 1})
    words = rf"y.npz: layer_version: expected at most {VERSION}, got {VERSION + 1}; read it with a newer hierattn"
    for opened in (layer_in, read):
        with pytest.raises(InputError, match=words):
            opened(tmp_path / "y.npz")


def test_a_field_that_a_file_cannot_hold_is_refused():
    @dataclass(frozen=True, eq=False, kw_only=True)
    class Dilated(Architecture):
        dilation: int = 3

    with pytest.raises(InputError, match="layer: expected fields that a file can hold, got dilation"):
        arrays_of(Dilated())


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


def test_compare_takes_heads_of_unequal_scales_and_some_of_the_tokens(run, tmp_path):
    """All that the description holds, or nothing: not the scale of the first head."""
    layer = Architecture(heads=2, sigma_v=[0.5, 2.0], mask="causal", bias=np.arange(16.0).reshape(4, 4) / 9)
    np.savez(tmp_path / "y.npz", outputs=Y[:, [1, 3]], kernel=np.eye(4), tokens=[1, 3], **arrays_of(layer))
    record = json.loads(run("compare", tmp_path / "y.npz", "--token", 1, "--json")[1])
    assert record["variance_law"] == pytest.approx(Law(layer, np.eye(4)).moments(3).variance, rel=1e-6)
    record = json.loads(run("inspect", tmp_path / "y.npz", "--json")[1])
    assert (record["value_scale"], record["score_scale"], record["score_function"]) == ([0.5, 2.0], 1.0, "softmax")
    with pytest.raises(InputError, match="tokens: expected all of the kernel's tokens in order for rotary embeddings"):
        law_of(Observations(Y[:, :2], np.eye(4), tokens=[0, 1], layer=LAYERS["rotary, bias"]))
    for observations in (Observations(Y, np.eye(4)), Observations(Y, layer=Architecture())):
        with pytest.raises(InputError, match=r"layer: expected|kernel: expected one kernel for all"):
            law_of(observations)


def test_compare_holds_outputs_against_the_described_law(run, tmp_path):
    file, layer = tmp_path / "y.npz", Architecture(heads=1, sigma_q=1.6)
    np.savez(file, outputs=Y, kernel=np.eye(4), **arrays_of(layer))
    record = json.loads(run("compare", file, "--json")[1])
    assert record["variance_law"] == pytest.approx(Law(layer, np.eye(4)).moments().variance)
    options = ("--heads", 2, "--score-scale", 3, "--score-function", "identity", "--kernel", "K.npy")
    code, _, err = run("compare", file, *options)
    assert code == 2
    named = "--heads, --score-scale, --score-function, --kernel"
    assert f"expected no options for a file that describes its layer, got {named}; leave them out" in err
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
