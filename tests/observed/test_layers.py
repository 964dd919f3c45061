"""Outputs of several layers: each read as if it were alone."""

import numpy as np
import pytest
import xarray as xr

from hierattn import InputError, Observations
from hierattn.observed.layers import read_layers

LAYERS, NETWORKS, TOKENS, COORDINATES = 3, 5, 2, 4
RNG = np.random.default_rng(0)
Y = RNG.normal(size=(LAYERS, NETWORKS, TOKENS, COORDINATES))
X = RNG.normal(size=(LAYERS, NETWORKS, TOKENS, 6))
K_EACH = X[:, 0] @ X[:, 0].swapaxes(-1, -2) / 6


def same(found, expected):
    np.testing.assert_array_equal(found.S, expected.S)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert (found.kernel is None) == (expected.kernel is None)
    if found.kernel is not None:
        np.testing.assert_allclose(found.kernel, expected.kernel)
    assert (found.heads, found.mask, found.networks, found.sha256) == (
        expected.heads,
        expected.mask,
        expected.networks,
        expected.sha256,
    )


def alone(number, **known):
    return Observations(Y[number], **known)


BESIDE = {  # what a file holds, and what one layer of it has
    "nothing": ({}, lambda number: {}),
    "one kernel": ({"kernel": K_EACH[0]}, lambda number: {"kernel": K_EACH[0]}),
    "a kernel a layer": ({"kernel": K_EACH}, lambda number: {"kernel": K_EACH[number]}),
    "a kernel a network": (
        {"kernel": np.stack([K_EACH[0]] * NETWORKS)},
        lambda number: {"kernel": np.stack([K_EACH[0]] * NETWORKS)},
    ),
    "a kernel a network and layer": (
        {"kernel": X @ X.swapaxes(-1, -2) / 6},
        lambda number: {"kernel": X[number] @ X[number].swapaxes(-1, -2) / 6},
    ),
    "inputs": ({"inputs": X}, lambda number: {"inputs": X[number]}),
    "inputs of one network": ({"inputs": X[0, 0]}, lambda number: {"inputs": X[0, 0]}),
    "heads": ({"heads": 2}, lambda number: {"heads": 2}),
    "heads a layer": ({"heads": np.array([1, 2, 4])}, lambda number: {"heads": 2**number}),
    "a mask": ({"mask": np.tri(2, dtype=bool)}, lambda number: {"mask": np.tri(2, dtype=bool)}),
}


@pytest.mark.parametrize("name", BESIDE)
def test_each_layer_of_a_file_is_read_as_if_it_were_alone(name, tmp_path):
    held, of_layer = BESIDE[name]
    np.savez(tmp_path / "y.npz", outputs=Y, **held)
    found = read_layers([tmp_path / "y.npz"])
    assert list(found) == ["layer_0", "layer_1", "layer_2"]
    for number, make in enumerate(found.values()):
        if name == "a mask":
            np.testing.assert_array_equal(make().mask, np.tri(2, dtype=bool))
        else:
            same(make(), alone(number, **of_layer(number)))
            assert make().source == "y.npz"


def test_what_is_given_comes_before_the_file(tmp_path):
    np.savez(tmp_path / "y.npz", outputs=Y, kernel=K_EACH)
    known = {"kernel": "identity:3", "tokens": [2, 0], "heads": 2, "mask": "causal", "networks": 4}
    for number, make in enumerate(read_layers([tmp_path / "y.npz"], **known).values()):
        found = make()
        np.testing.assert_allclose(found.S, alone(number).S[:4])
        assert (found.kernel.shape, found.tokens.tolist(), found.heads, found.mask) == ((3, 3), [2, 0], 2, "causal")
    np.savez(tmp_path / "k.npz", kernel=2 * K_EACH)
    given = read_layers([tmp_path / "y.npz"], kernel=str(tmp_path / "k.npz"))
    np.testing.assert_allclose(given["layer_1"]().kernel, 2 * K_EACH[1])


def test_files_have_names_of_their_own(tmp_path):
    (tmp_path / "b").mkdir()
    for path in ("a.npy", "b/a.npy"):
        np.save(tmp_path / path, Y[0])
    np.save(tmp_path / "c.npy", Y[:2])
    np.save(tmp_path / "one.npy", Y[:1])
    found = read_layers([tmp_path / path for path in ("a.npy", "b/a.npy", "c.npy", "nowhere.npz")], heads=1)
    assert list(found) == ["a", "a_2", "c_layer_0", "c_layer_1", "nowhere"]
    same(found["c_layer_1"](), alone(1, heads=1))
    with pytest.raises(InputError, match="expected a file, got none"):
        found["nowhere"]()
    assert list(read_layers([tmp_path / "one.npy"])) == ["layer_0"]


def test_axes_have_names_where_the_file_has_them(tmp_path):
    """Kernels of layers too, also where there are as many layers as networks; without names nobody guesses."""
    dims = ("layer", "network", "token", "coordinate")
    y, K = Y[:, :3], xr.DataArray(K_EACH, dims=("layer", "token", "token_"))
    xr.Dataset({"outputs": (dims, y), "kernel": K}).to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    np.testing.assert_allclose(read_layers([tmp_path / "y.nc"])["layer_2"]().kernel, K_EACH[2])
    xr.Dataset({"outputs": (dims[::-1], y.T)}).to_netcdf(tmp_path / "swapped.nc", engine="h5netcdf")
    with pytest.raises(InputError, match="expected axes layer, network, token, coordinate, got coordinate, token"):
        read_layers([tmp_path / "swapped.nc"])
    np.savez(tmp_path / "y.npz", outputs=y, kernel=K_EACH)
    with pytest.raises(InputError, match="expected axes that tell 3 layers from 3 networks"):
        read_layers([tmp_path / "y.npz"])["layer_0"]()
