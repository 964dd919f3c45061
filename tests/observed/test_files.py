"""Observations from files: what is beside the outputs, what comes before it, what cannot be used."""

import numpy as np
import pytest
import xarray

from hierattn import Architecture, InputError, Observations, kernels, read
from hierattn.layer.record import arrays_of

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(7, 3, 5))
X = RNG.normal(size=(7, 3, 4)).astype(np.float32)
K = kernels.rbf(3, 1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observations")
    np.save(folder / "y.npy", Y)
    np.save(folder / "K.npy", K)
    np.save(folder / "X.npy", X)
    np.save(folder / "mask.npy", np.tri(3, dtype=bool))
    np.savez(folder / "all.npz", outputs=Y, kernel=K, heads=2, tokens=[0, 1, 2], mask="causal")
    np.savez(folder / "inputs.npz", outputs=Y, inputs=X, mask=np.tri(3, dtype=bool))
    np.savez(folder / "both.npz", outputs=Y, inputs=X, kernel=K)
    np.savez(folder / "heads.npz", outputs=Y, heads=2.5)
    np.savez(folder / "mask.npz", outputs=Y, mask=np.tri(4, dtype=bool))
    np.savez(folder / "tokens.npz", outputs=Y, kernel=K, tokens=[0, 1])
    np.savez(folder / "nan.npz", outputs=Y, kernel=np.full((3, 3), np.inf))
    np.savez(folder / "full.npz", outputs=Y, mask=np.ones((3, 3), bool))
    np.savez(folder / "layer.npz", outputs=Y, **arrays_of(Architecture(heads=2, mask=np.eye(3, dtype=bool))))
    np.savez(folder / "objects.npz", outputs=Y, kernel=K, names=np.array([{}]))
    return folder


def test_a_file_with_everything(folder):
    found = read(folder / "all.npz")
    np.testing.assert_array_equal(found.S, Observations(Y).S)
    np.testing.assert_array_equal(found.kernel, K)
    assert (found.kernel_origin, found.heads, found.mask, found.source) == ("given", 2, "causal", "all.npz")
    assert found.sha256 == Observations(Y).sha256 == read(folder / "y.npy").sha256
    found = read(folder / "inputs.npz")
    np.testing.assert_array_equal(found.kernel, Observations(Y, inputs=X).kernel)
    np.testing.assert_array_equal(found.mask, np.tri(3))
    assert read(folder / "objects.npz").kernel_origin == "given"  # what is not asked for is not opened


def test_arguments_come_before_the_file(folder):
    found = read(folder / "all.npz", kernel="identity:4", tokens=[3, 1, 0], mask="none", networks=3)
    assert (found.kernel_origin, found.tokens.tolist(), found.mask, found.networks) == ("identity", [3, 1, 0], None, 3)
    assert read(folder / "inputs.npz", "inferred").kernel_origin == "inferred"
    assert read(folder / "inputs.npz", K).kernel_origin == "given"
    assert read(folder / "all.npz", inputs=X).kernel_origin == "inputs"
    assert read(folder / "inputs.npz", mask="causal").mask == "causal"
    np.testing.assert_array_equal(read(folder / "all.npz", mask=np.tri(3, dtype=int)).mask, np.tri(3))
    assert read(folder / "all.npz", heads=2).heads == read(folder / "y.npy", heads=2).heads == 2


def test_the_layer_of_a_file_has_its_mask_and_none_takes_it_off(folder):
    found = read(folder / "layer.npz")
    np.testing.assert_array_equal(found.layer.mask, np.eye(3))
    assert found.mask is found.layer.mask
    off = read(folder / "layer.npz", mask="none")
    assert (off.mask, off.layer.mask, off.layer.heads) == (None, None, 2)
    same = read(folder / "layer.npz", mask=np.eye(3, dtype=int))
    np.testing.assert_array_equal(same.mask, np.eye(3))
    assert read(folder / "full.npz").mask is None


def test_other_files_beside_it(folder):
    found = read(folder / "y.npy", str(folder / "K.npy"), mask=folder / "mask.npy")
    np.testing.assert_array_equal(found.kernel, K)
    np.testing.assert_array_equal(found.mask, np.tri(3))
    found = read(folder / "y.npy", inputs=folder / "X.npy")
    np.testing.assert_array_equal(found.kernel, Observations(Y, inputs=X).kernel)


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("all.npz", {"heads": 3}, "heads: expected 2, as {folder}/all.npz says, got 3; leave it out"),
        ("both.npz", {}, "kernel: expected either a kernel or inputs, got both"),
        ("heads.npz", {}, "heads in {folder}/heads.npz: expected a positive whole number, got 2.5"),
        ("mask.npz", {}, "mask in {folder}/mask.npz: expected shape (3, 3) (queries, keys), got (4, 4)"),
        ("tokens.npz", {}, "tokens in {folder}/tokens.npz: expected 3 whole numbers"),
        ("nan.npz", {}, "kernel in {folder}/nan.npz: expected finite numbers, got 0 NaN and 9 infinite, the first at (0, 0)"),
        ("all.npz", {"mask": np.eye(3, dtype=bool)}, "mask: expected that of {folder}/all.npz, got another; leave it out"),
        ("inputs.npz", {"mask": np.eye(3, dtype=bool)}, "mask: expected that of {folder}/inputs.npz, got another"),
        ("full.npz", {"mask": "causal"}, "mask: expected that of {folder}/full.npz, got another"),
        ("layer.npz", {"mask": "mask.npy"}, "mask: expected that of {folder}/layer.npz, got another"),
        ("layer.npz", {"heads": 1}, "heads: expected 2, as {folder}/layer.npz says, got 1; leave it out"),
        ("all.npz", {"networks": 9}, "networks: expected a whole number from 1 to 7, got 9; outputs in {folder}/all.npz has 7"),
        ("y.npy", {"kernel": "identety"}, "identety: expected a file, got none"),
        ("y.npy", {"kernel": np.eye(5)}, "outputs in {folder}/y.npy: expected shape (network, 5 tokens"),
    ],
)
def test_files_that_cannot_be_used(folder, monkeypatch, name, more, words):
    monkeypatch.chdir(folder)
    with pytest.raises(InputError) as raised:
        read(folder / name, **more)
    assert words.format(folder=folder) in str(raised.value)


def test_axes_that_the_file_names(tmp_path):
    swapped = xarray.Dataset({"outputs": (("network", "coordinate", "token"), Y.swapaxes(1, 2))})
    swapped.to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    swapped.to_zarr(tmp_path / "y.zarr", consolidated=False)
    for name in ("y.nc", "y.zarr"):
        with pytest.raises(InputError, match="axes network, token, coordinate, got them swapped: network, coordinate, token"):
            read(tmp_path / name)
    with pytest.raises(InputError, match="outputs: expected axes network, token, coordinate, got them swapped"):
        Observations(swapped["outputs"])
    xarray.Dataset({"outputs": (("network", "token", "coordinate"), Y)}).to_netcdf(tmp_path / "good.nc", engine="h5netcdf")
    assert read(tmp_path / "good.nc").sha256 == Observations(Y).sha256
