"""Files in: every kind gives the same array, every bad file its one-line error."""

import io
import json
import os
import pickle
import struct
import sys
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import h5netcdf
import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from safetensors.numpy import save_file

from hierattn import InputError, UnsafeInputError, files, formats, storage, stored
from tests import large_files

Y = np.random.default_rng(0).normal(size=(7, 3, 2)).astype(np.float32)
DIMS = ("network", "token", "coordinate")


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header_claiming(shape):
    """The start of a .npy file whose header promises an array of this shape."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)


def netcdf(path, chunks=None, **arrays):
    with h5netcdf.File(path, "w") as file:
        for name, array in arrays.items():
            dims = [f"{name}_{axis}" for axis in range(np.ndim(array))]
            file.dimensions.update(dict(zip(dims, np.shape(array), strict=True)))
            file.create_variable(name, tuple(dims), np.asarray(array).dtype, chunks=chunks, data=array)


def good_files(folder):
    """The same array in every kind of file, with others beside it where the kind allows."""
    other = np.arange(5)
    np.save(folder / "a.npy", Y)
    np.save(folder / "fortran.npy", np.asfortranarray(Y))
    np.save(folder / "big_endian.npy", Y.astype(">f4"))
    np.savez(folder / "a.npz", outputs=Y, other=other)
    np.savez_compressed(folder / "deflated.npz", outputs=Y, other=other)
    np.savez(folder / "one.npz", anything=Y)
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


class Trap:
    """Unpickling it leaves a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def pickling_zarr(path, trap, where, kind="<f8"):
    zarr.open_group(path, mode="w", zarr_format=2).create_array("outputs", data=Y.astype(float), compressors=None)
    settings = json.loads((path / "outputs" / ".zarray").read_text())
    settings["dtype"] = kind
    settings[where] = {"id": "pickle"} if where == "compressor" else [{"id": "pickle"}]
    (path / "outputs" / ".zarray").write_text(json.dumps(settings))
    (path / "outputs" / "0.0.0").write_bytes(pickle.dumps(trap))


def bad_files(folder):
    good = npy(Y)
    (folder / "folder.npy").mkdir()
    (folder / "plain").mkdir()
    for kind in ("npy", "npz", "nc", "safetensors", "csv", "zarr"):
        (folder / f"empty.{kind}").touch()
        (folder / f"magic.{kind}").write_bytes(b"hello, hello\n" * 20)
    os.mkfifo(folder / "pipe.npy")
    (folder / "picture.png").write_bytes(b"x")
    (folder / "truncated.npy").write_bytes(good[:-20])
    (folder / "claims.npy").write_bytes(header_claiming((10, 10)))
    (folder / "boasts.npy").write_bytes(header_claiming((10**6, 10**6)))
    (folder / "negative.npy").write_bytes(header_claiming((-1, 2)) + bytes(99))
    trap = np.array([Trap(folder / "sprung")], dtype=object)
    (folder / "objects.npy").write_bytes(npy(trap))
    archive(folder / "objects.npz", {"outputs.npy": npy(trap)})
    archive(folder / "several.npz", {"a.npy": good, "b.npy": good})
    archive(folder / "kernel.npz", {"kernel.npy": good})
    archive(folder / "nothing.npz", {})
    archive(folder / "claims.npz", {"outputs.npy": header_claiming((99,)) + bytes(80)})
    archive(folder / "boasts.npz", {"outputs.npy": header_claiming((2**29,)) + bytes(99)})
    for i, name in enumerate(("../outputs.npy", "/etc/outputs.npy", "..\\outputs.npy", "c:outputs.npy")):
        archive(folder / f"escape{i}.npz", {name: good})
    archive(folder / "bomb.npz", {"outputs.npy": header_claiming((2**24,)) + bytes(2**27)}, zipfile.ZIP_DEFLATED)
    lying_archives(folder, good)
    netcdf(folder / "a.nc", outputs=np.random.default_rng(0).normal(size=(500, 3, 2)))
    (folder / "truncated.nc").write_bytes((folder / "a.nc").read_bytes()[:-3000])
    with h5py.File(folder / "external.nc", "w") as file:
        file["outputs"] = h5py.ExternalLink(str(folder / "a.nc"), "outputs")
    with h5py.File(folder / "raw.nc", "w") as file:
        file.create_dataset("outputs", (4, 3, 2), "f4", external=[(str(folder / "a.nc"), 0, h5py.h5f.UNLIMITED)])
    with h5py.File(folder / "unwritten.nc", "w") as file:
        file.create_dataset("outputs", (2**40, 3, 2), "f4", chunks=(64, 3, 2))
    with h5py.File(folder / "chunk.nc", "w") as file:
        file.create_dataset("outputs", (2**23, 3, 2), "f4", chunks=(2**23, 3, 2), compression="gzip")
        file["outputs"].id.write_direct_chunk((0, 0, 0), os.urandom(2**20))
    zarr_files(folder)
    save_file({"outputs": Y}, folder / "a.safetensors")
    (folder / "truncated.safetensors").write_bytes((folder / "a.safetensors").read_bytes()[:-10])
    eights = json.dumps({"outputs": {"dtype": "F8_E4M3", "shape": [2, 3, 2], "data_offsets": [0, 12]}}).encode()
    (folder / "eights.safetensors").write_bytes(struct.pack("<Q", len(eights)) + eights + bytes(12))
    entry = {"outputs": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}
    (folder / "boasts.safetensors").write_bytes(struct.pack("<Q", len(json.dumps(entry))) + json.dumps(entry).encode())
    texts = {
        "ragged": "1,2\n3\n",
        "header": "a,b\n1,2\n",
        "alone": "network,token,coordinate,output\n",
        "twice": "network,token,coordinate,output\n0,0,0,1\n0,0,0,2\n",
        "missing": "network,token,coordinate,output\n0,0,0,1\n1,1,0,2\n",
        "labels": "network,token,coordinate,output\n0.5,0,0,1\n1,0,0,2\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)


def lying_archives(folder, good):
    """Archives whose directory says other sizes than the members have, and one with a bit turned over."""
    archive(folder / "deflated.npz", {"outputs.npy": header_claiming((2**12,)) + bytes(2**15)}, zipfile.ZIP_DEFLATED)
    data = bytearray((folder / "deflated.npz").read_bytes())
    size = struct.pack("<L", len(header_claiming((2**12,))) + 2**15)
    assert data.count(size) == 2
    (folder / "understated.npz").write_bytes(data.replace(size, struct.pack("<L", 2**14)))
    (folder / "overstated.npz").write_bytes(data.replace(size, struct.pack("<L", 2**31 - 1)))
    archive(folder / "checksum.npz", {"outputs.npy": good})
    data = bytearray((folder / "checksum.npz").read_bytes())
    data[len(good)] ^= 1
    (folder / "checksum.npz").write_bytes(data)


def zarr_files(folder):
    (folder / "hollow.zarr").mkdir()
    zarr.open_group(folder / "nothing.zarr", mode="w")
    zarr.open_group(folder / "unwritten.zarr", mode="w").create_array(
        "outputs", shape=(2**40, 3, 2), dtype="f4", chunks=(64, 3, 2)
    )
    zarr.open_group(folder / "damaged.zarr", mode="w").create_array("outputs", data=Y)
    (folder / "damaged.zarr" / "outputs" / "c" / "0" / "0" / "0").write_bytes(b"hello")
    zarr.open_group(folder / "chunk.zarr", mode="w").create_array(
        "outputs", shape=(2**23, 3, 2), dtype="f4", chunks=(2**23, 3, 2)
    )
    for where in ("compressor", "filters"):
        pickling_zarr(folder / f"{where}.zarr", Trap(folder / "sprung"), where)
    pickling_zarr(folder / "objects.zarr", Trap(folder / "sprung"), "filters", kind="|O")


DAMAGED, EMPTY = "damaged or of another kind", "got an empty file"
BAD = {
    "missing.npy": (InputError, "expected a file, got none; check the path"),
    "folder.npy": (InputError, "got a directory"),
    "plain": (InputError, "got a directory"),
    "pipe.npy": (InputError, "got a device or a pipe"),
    "picture.png": (InputError, "expected a file ending in .npy, .npz, .nc, .zarr, .safetensors, .csv, got .png"),
    **{f"empty.{kind}": (InputError, EMPTY) for kind in ("npy", "npz", "nc", "zarr", "safetensors", "csv")},
    **{f"magic.{kind}": (InputError, DAMAGED) for kind in ("npy", "npz", "nc", "zarr", "safetensors", "csv")},
    "truncated.npy": (InputError, "is it truncated?"),
    "claims.npy": (InputError, "got a header that claims 800"),
    "boasts.npy": (UnsafeInputError, "got a header that claims 8000000000000"),
    "negative.npy": (InputError, "got a header that claims shape (-1, 2)"),
    "objects.npy": (InputError, "got pickled objects"),
    "objects.npz": (InputError, "got pickled objects"),
    "several.npz": (InputError, "expected an array called outputs, got a, b"),
    "kernel.npz": (InputError, "expected an array called outputs, got kernel"),
    "nothing.npz": (InputError, "expected an array called outputs, got none"),
    "claims.npz": (InputError, "got a header that claims 792"),
    "boasts.npz": (UnsafeInputError, "got a header that claims 4294967296"),
    **{f"escape{i}.npz": (UnsafeInputError, "leaves the archive") for i in range(4)},
    "bomb.npz": (UnsafeInputError, "is it a bomb?"),
    "understated.npz": (InputError, "got a header that claims 32768"),
    "overstated.npz": (UnsafeInputError, "is it a bomb?"),
    "checksum.npz": (InputError, DAMAGED),
    "truncated.nc": (InputError, DAMAGED),
    "external.nc": (UnsafeInputError, "got a link to elsewhere"),
    "raw.nc": (UnsafeInputError, "got a link to elsewhere"),
    "unwritten.nc": (UnsafeInputError, "is it a bomb?"),
    "chunk.nc": (UnsafeInputError, "expected chunks of at most"),
    "hollow.zarr": (InputError, DAMAGED),
    "nothing.zarr": (InputError, "expected an array called outputs, got none"),
    "unwritten.zarr": (UnsafeInputError, "is it a bomb?"),
    "chunk.zarr": (UnsafeInputError, "is it a bomb?"),
    "damaged.zarr": (InputError, DAMAGED),
    "compressor.zarr": (InputError, "got pickled objects"),
    "filters.zarr": (InputError, "got pickled objects"),
    "objects.zarr": (InputError, "got pickled objects"),
    "truncated.safetensors": (InputError, DAMAGED),
    "eights.safetensors": (InputError, "expected outputs in one of F64, F32, F16, BF16, BOOL, I64"),
    "boasts.safetensors": (InputError, DAMAGED),
    "ragged.csv": (InputError, DAMAGED),
    "header.csv": (InputError, DAMAGED),
    "alone.csv": (InputError, DAMAGED),
    "twice.csv": (InputError, "expected 1 networks x 1 tokens x 1 coordinates, each once, got 2 rows"),
    "missing.csv": (InputError, "expected 2 networks x 2 tokens x 1 coordinates, each once, got 2 rows"),
    "labels.csv": (InputError, "expected whole numbers for network, token and coordinate"),
}


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
        (formats, "LARGEST_FORTRAN", "f.npy", "got Fortran order; save numpy.ascontiguousarray"),
        (formats, "LARGEST_CSV", "a.csv", "expected at most 7 bytes of text, got 8; use .npy"),
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
        formats._zarr_array(tmp_path, array)


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


def test_large_files_cost_little_memory():
    """200 MB in every kind of file: less than 128 MB more than the imports, half of which are the outputs that are kept."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / f"y.{kind}" for kind in large_files.WRITERS]
        (shape,) = {large_files.write(name, 200_000_000) for name in names}
        found = large_files.read_elsewhere(*names)
    sha256, y = storage.begin_digest(shape, np.dtype(np.float32)), large_files.block().tobytes()
    for _ in range(shape[0] // large_files.ROWS):
        sha256.update(y)
    assert len(found) == len(names)
    for name, before, peak, networks, digest in found:
        assert float(peak) - float(before) < 128, name
        assert (int(networks), digest) == (shape[0], sha256.hexdigest())
