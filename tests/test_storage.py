"""Files in: every bad one has its one-line error. Files out: whole or not at all."""

import io
import os
import zipfile

import numpy as np
import pytest

from hierattn import InputError, UnsafeInputError, storage

K = np.eye(3)


def header_claiming(shape):
    """The start of a .npy file whose header promises an array of this shape."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def bad_files(folder):
    np.save(folder / "good.npy", K)
    good = (folder / "good.npy").read_bytes()
    (folder / "folder.npy").mkdir()
    (folder / "empty.npy").touch()
    (folder / "truncated.npy").write_bytes(good[:-20])
    (folder / "magic.npy").write_bytes(b"hello" * 20)
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "claims.npy").write_bytes(header_claiming((10, 10)))
    (folder / "bomb.npy").write_bytes(header_claiming((10**6, 10**6)))
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 not really")
    np.savez(folder / "several.npz", a=K, b=K)
    with zipfile.ZipFile(folder / "escape.npz", "w") as archive:
        archive.writestr("../kernel.npy", good)
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kernel.npy", header_claiming((2**29,)) + b"\0" * 100)
    (folder / "words.csv").write_text("a,b\nc,d\n")
    (folder / "ragged.csv").write_text("1,2\n3\n")
    (folder / "not.nc").write_bytes(b"CDF nonsense")
    (folder / "picture.png").write_bytes(b"x")


BAD = {
    "missing.npy": (InputError, "expected a file, got none"),
    "folder.npy": (InputError, "got a directory"),
    "empty.npy": (InputError, "got an empty file"),
    "truncated.npy": (InputError, "is it truncated?"),
    "magic.npy": (InputError, "damaged or of another kind"),
    "objects.npy": (InputError, "got pickled objects"),
    "claims.npy": (InputError, "expected 800 bytes of numbers"),
    "bomb.npy": (UnsafeInputError, "got a header that claims 8000000000000"),
    "broken.npz": (InputError, "damaged or of another kind"),
    "several.npz": (InputError, "expected an array called kernel, got a, b"),
    "escape.npz": (UnsafeInputError, "leaves the archive"),
    "bomb.npz": (UnsafeInputError, "got a header that claims 4294967296"),
    "words.csv": (InputError, "damaged or of another kind"),
    "ragged.csv": (InputError, "damaged or of another kind"),
    "not.nc": (InputError, "damaged or of another kind"),
    "picture.png": (InputError, "expected a file ending in .npy, .npz, .nc, .csv, got .png"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, name):
    bad_files(tmp_path)
    kind, words = BAD[name]
    with pytest.raises(kind) as raised:
        storage.read_array(tmp_path / name, "kernel")
    message = str(raised.value)
    assert words in message
    assert name in message
    assert "\n" not in message
    assert "allow_pickle" not in message
    assert type(raised.value) is kind


def test_good_files(tmp_path):
    np.save(tmp_path / "a.npy", K)
    np.savez_compressed(tmp_path / "a.npz", kernel=K, other=2 * K)
    np.savez(tmp_path / "one.npz", anything=K)
    (tmp_path / "a.csv").write_text("1,0,0\n0,1,0\n0,0,1\n")
    storage.write_netcdf(tmp_path / "a.nc", {"kernel": {"token": 3, "token_": 3}}, [{"kernel": K}], {}, force=False)
    for name in ("a.npy", "a.npz", "one.npz", "a.csv", "a.nc"):
        np.testing.assert_array_equal(storage.read_array(tmp_path / name, "kernel"), K)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def parts():
        yield {"outputs": np.ones((2, 3))}
        raise RuntimeError("interrupted")

    shapes = {"outputs": {"network": 4, "token": 3}}
    with pytest.raises(RuntimeError):
        storage.write_netcdf(tmp_path / "x.nc", shapes, parts(), {}, force=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.nc").write_text("precious")
    with pytest.raises(RuntimeError):
        storage.write_netcdf(tmp_path / "x.nc", shapes, parts(), {}, force=True)
    assert (tmp_path / "x.nc").read_text() == "precious"


def test_what_cannot_be_written_is_refused_first(tmp_path):
    shapes = {"x": {"network": 2}}
    (tmp_path / "there.nc").touch()
    with pytest.raises(InputError, match="expected a new file, got one that exists"):
        storage.write_netcdf(tmp_path / "there.nc", shapes, [], {}, force=False)
    with pytest.raises(InputError, match="expected a folder to write in"):
        storage.write_netcdf(tmp_path / "no" / "x.nc", shapes, [], {}, force=False)
    with pytest.raises(InputError, match="got a directory"):
        storage.write_netcdf(tmp_path, shapes, [], {}, force=True)
    with pytest.raises(UnsafeInputError, match="bytes that are free"):
        storage.write_netcdf(tmp_path / "x.nc", {"x": {"network": 10**15}}, [], {}, force=False)


def test_equal_runs_write_equal_bytes(tmp_path):
    for name in ("a.nc", "b.nc"):
        shapes = {"outputs": {"network": 2, "token": 3}}
        storage.write_netcdf(tmp_path / name, shapes, [{"outputs": np.ones((2, 3))}], storage.provenance(3), force=False)
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()
    assert os.stat(tmp_path / "a.nc").st_mode & 0o044  # others may read it, as the umask allows
