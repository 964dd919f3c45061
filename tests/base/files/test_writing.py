"""Files out: whole or not at all."""

import os

import numpy as np
import pytest

from hierattn import InputError, UnsafeInputError
from hierattn.base import provenance
from hierattn.base.files import writing as storage


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
        storage.write_netcdf(tmp_path / name, shapes, [{"outputs": np.ones((2, 3))}], provenance.provenance(3), force=False)
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()
    assert os.stat(tmp_path / "a.nc").st_mode & 0o044  # others may read it, as the umask allows


def test_the_hash_of_an_array_can_be_had_block_by_block():
    y = np.random.default_rng(0).normal(size=(7, 2, 3))
    sha256 = provenance.begin_digest(y.shape, y.dtype)
    for rows in (y[:4], y[4:]):
        sha256.update(rows.tobytes())
    assert sha256.hexdigest() == provenance.digest(y) == provenance.digest(np.asfortranarray(y))
    others = (y.astype(np.float32), y.reshape(7, 3, 2), -y)
    assert len({provenance.digest(array) for array in (y, *others)}) == 4
