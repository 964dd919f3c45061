"""Files in: every kind gives the same array, every bad file its one-line error."""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numcodecs
import numpy as np
import pytest
import zarr
from safetensors.numpy import save_file

from hierattn import InputError, UnsafeInputError
from hierattn.base import provenance
from hierattn.base.files import reading as files
from hierattn.base.files import stored
from hierattn.base.files.formats import csv_files, numpy_files, protocol, zarr_folders
from tests.base.files import large_files
from tests.base.files.bad_files import BAD, Y, bad_files, netcdf


def good_files(folder):
    """The same array in every kind of file, with others beside it where the kind allows."""
    other = np.arange(5)
    np.save(folder / "a.npy", Y)
    np.save(folder / "fortran.npy", np.asfortranarray(Y))
    np.save(folder / "big_endian.npy", Y.astype(">f4"))
    np.savez(folder / "a.npz", outputs=Y, other=other)
    np.savez_compressed(folder / "deflated.npz", outputs=Y, other=other)
    np.savez(folder / "one.npz", Y)  # which NumPy calls arr_0
    netcdf(folder / "a.nc", outputs=Y, other=other)
    netcdf(folder / "chunks.nc", chunks=(2, 3, 1), outputs=Y)
    for name, kind in {"a.zarr": 3, "v2.zarr": 2}.items():
        group = zarr.open_group(folder / name, mode="w", zarr_format=kind)
        group.create_array("outputs", data=Y, chunks=(3, 2, 2))
        group.create_array("other", data=other)
    zarr.save_array(folder / "one.zarr", Y)
    save_file({"outputs": Y, "other": other}, folder / "a.safetensors")
    rows = [f"{m},{i + 1},{c},{Y[m, i, c]:.9g}" for m, i, c in np.ndindex(Y.shape)]
    (folder / "long.csv").write_text("\n".join(["Network, token,coordinate,output", *reversed(rows)]))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    good_files(folder)
    return folder


GOOD = (
    "a.npy fortran.npy big_endian.npy a.npz deflated.npz one.npz a.nc chunks.nc a.zarr v2.zarr one.zarr a.safetensors long.csv"
)


@pytest.mark.parametrize("name", GOOD.split())
def test_every_kind_of_file_gives_the_same_array(good, name, monkeypatch):
    np.testing.assert_array_equal(np.float32(files.read_array(good / name, "outputs")), Y)
    monkeypatch.setattr(stored, "BLOCK", 2 * Y[0].nbytes)
    found = files.find(good / name, "outputs")
    blocks = list(found.blocks(5))
    assert sum(map(len, blocks)) == 5
    assert len(blocks) > (name != "one.zarr")  # which is one chunk
    assert all(block.dtype.isnative for block in blocks)
    np.testing.assert_array_equal(np.float32(np.concatenate(blocks)), Y[:5])
    assert (found.source, found.label, found.shape) == (name, f"outputs in {good / name}", Y.shape)


def test_other_shapes_and_kinds(tmp_path):
    """No axes, no rows, and half precision as torch saves it."""
    arrays = {"number": np.array(3), "nothing": np.empty((0, 2)), "matrix": np.eye(3), "yes": np.eye(3, dtype=np.uint8)}
    np.savez(tmp_path / "a.npz", **arrays)
    save_file(arrays, tmp_path / "a.safetensors")
    netcdf(tmp_path / "a.nc", number=arrays["number"], matrix=arrays["matrix"])
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=array)
    for kind in ("npz", "safetensors", "nc", "zarr"):
        for name in files.arrays(tmp_path / f"a.{kind}"):
            found = files.read_array(tmp_path / f"a.{kind}", name)
            np.testing.assert_array_equal(found, arrays[name])
            assert found.dtype == arrays[name].dtype
    import ml_dtypes

    save_file({"outputs": Y.astype(ml_dtypes.bfloat16)}, tmp_path / "b.safetensors")
    found = files.read_array(tmp_path / "b.safetensors", "outputs")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, Y, rtol=2**-8)


def test_csv_is_a_matrix_or_one_row_a_network(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n5,6\n")
    np.testing.assert_array_equal(files.read_array(tmp_path / "a.csv", "kernel"), [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(files.read_array(tmp_path / "a.csv", "outputs"), np.arange(1.0, 7).reshape(3, 2, 1))


def test_every_format_keeps_the_protocol():
    """Endings, folders or files, and arrays by name: all that a new format has to say."""
    assert list(files.READERS) == [".npy", ".npz", ".nc", ".zarr", ".safetensors", ".csv"]
    needed = {name for name in dir(protocol.Format) if not name.startswith("_")}
    folder = Path(protocol.__file__).parent
    assert len(files.FORMATS) == len([file for file in folder.glob("*.py") if file.stem not in ("__init__", "protocol")])
    for kind in files.FORMATS:
        assert {name for name in needed if hasattr(kind, name)} == {"SUFFIXES", "FOLDERS", "arrays"}


def test_one_array_of_another_name_is_not_taken_for_ours(tmp_path):
    np.savez(tmp_path / "foo.npz", foo=Y)
    netcdf(tmp_path / "foo.nc", foo=Y)
    zarr.open_group(tmp_path / "foo.zarr", mode="w").create_array("foo", data=Y)
    save_file({"foo": Y}, tmp_path / "foo.safetensors")
    np.savez(tmp_path / "two.npz", Y, foo=Y)
    for name in ("outputs", "kernel"):
        words = rf"expected an array called {name}, got foo; numpy.savez\(FILE, {name}=...\) writes one"
        with pytest.raises(InputError, match=words):
            files.find(tmp_path / "foo.npz", name)
        for kind in ("nc", "zarr", "safetensors"):
            with pytest.raises(InputError, match=f"foo.{kind}: expected an array called {name}, got foo; give it this name"):
                files.find(tmp_path / f"foo.{kind}", name)
        with pytest.raises(InputError, match=f"expected an array called {name}, got arr_0, foo"):
            files.find(tmp_path / "two.npz", name)


def test_chunks_are_read_once(good):
    """Blocks are whole chunks where they fit, so that nothing is decompressed twice."""
    found = files.find(good / "a.zarr", "outputs")
    assert found.unit == 3
    assert files.find(good / "chunks.nc", "outputs").unit == 2
    assert [len(block) for block in found.read(found._rows_at_once())] == [7]
    for size, rows in ((4 * Y[0].nbytes, 3), (7 * Y[0].nbytes, 6), (1, 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stored, "BLOCK", size)
            assert found._rows_at_once() == rows
            patch.setattr(stored, "LARGEST_ROW", 2 * Y[0].nbytes)
            assert found._rows_at_once() == (rows if size > 1 else 1)


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    bad_files(folder)
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_files(bad, name):
    kind, words = BAD[name]
    with pytest.raises(InputError) as raised:
        files.read_array(bad / name, "outputs")
    message = str(raised.value)
    assert words in message
    assert name in message
    assert "\n" not in message
    assert "allow_pickle" not in message
    assert type(raised.value) is kind
    assert not (bad / "sprung").exists()


@pytest.mark.parametrize(
    ("module", "limit", "name", "words"),
    [
        (stored, "TOO_LARGE", "a.npy", "expected at most 7 bytes, got 168"),
        (stored, "LARGEST_ROW", "a.npy", "expected at most 7 bytes along all axes but the first, got 24"),
        (numpy_files, "LARGEST_FORTRAN", "f.npy", "got Fortran order; save numpy.ascontiguousarray"),
        (csv_files, "LARGEST_CSV", "a.csv", "expected at most 7 bytes of text, got 8; use .npy"),
    ],
)
def test_what_is_too_large(tmp_path, monkeypatch, module, limit, name, words):
    np.save(tmp_path / "a.npy", Y)
    np.save(tmp_path / "f.npy", np.asfortranarray(Y))
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    monkeypatch.setattr(module, limit, 7)
    with pytest.raises(UnsafeInputError, match=words):
        files.read_array(tmp_path / name, "outputs")


def test_a_codec_that_unpickles_is_refused_whatever_zarr_thinks_of_it(tmp_path):
    """Releases of zarr that opened such an array would run what it holds at the first slice."""
    array = SimpleNamespace(filters=(numcodecs.Pickle(),), compressors=())
    with pytest.raises(InputError, match="expected numbers, got pickled objects"):
        zarr_folders._array(tmp_path, array)


@pytest.mark.parametrize("name", ["zarr", "safetensors"])
def test_a_package_that_is_not_there(good, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"expected the package {name} to read it, got none; pip install 'hierattn\[files\]'"):
        files.read_array(good / f"a.{name}", "outputs")


def test_a_file_that_may_not_be_read(tmp_path):
    """As the system would say it; root, who may run the tests, may read everything."""
    words = r"a\.npy: expected a file that can be opened, got: Permission denied"
    with pytest.raises(InputError, match=words), files.suspicion(tmp_path / "a.npy"):
        raise PermissionError(13, "Permission denied")


def test_lack_of_memory_is_not_the_files_fault(tmp_path):
    with pytest.raises(MemoryError), files.suspicion(tmp_path / "a.npy"):
        raise MemoryError


@pytest.mark.slow
def test_large_files_cost_little_memory():
    """200 MB in every kind of file: less than 128 MB more than the imports, half of which are the outputs that are kept."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / f"y.{kind}" for kind in large_files.WRITERS]
        (shape,) = {large_files.write(name, 200_000_000) for name in names}
        found = large_files.read_elsewhere(*names)
    sha256, y = provenance.begin_digest(shape, np.dtype(np.float32)), large_files.block().tobytes()
    for _ in range(shape[0] // large_files.ROWS):
        sha256.update(y)
    assert len(found) == len(names)
    for name, before, peak, networks, digest in found:
        assert float(peak) - float(before) < 128, name
        assert (int(networks), digest) == (shape[0], sha256.hexdigest())
