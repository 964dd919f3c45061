"""Files that must be refused: a folder full of them, and what is said of each."""

import io
import json
import os
import pickle
import struct
import zipfile

import h5netcdf
import h5py
import numpy as np
import zarr
from safetensors.numpy import save_file

from hierattn import InputError, UnsafeInputError

Y = np.random.default_rng(0).normal(size=(7, 3, 2)).astype(np.float32)


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
