"""Files larger than the memory they may cost: write one block by block, read it elsewhere, see what that took.

python -m tests.base.files.large_files 10 npy npz deflated nc zarr safetensors     # gigabytes, kinds; in a temporary folder
"""

import json
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

TOKENS, COORDINATES = 8, 2048
ROWS = 64  # networks written at a time
READ = """
import resource, sys
import hierattn.observed.observations as o, zarr, safetensors, h5netcdf
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
for path in sys.argv[1:]:
    found = o.read(path)
    print(path, before, peak(), found.networks, found.sha256)
"""


def block():
    """Outputs whose last bits are zero, so that they deflate a little, and fast."""
    y = np.random.default_rng(0).normal(size=(ROWS, TOKENS, COORDINATES)).astype(np.float32)
    return (y.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def write(path, size):
    """A file of some `size` bytes of outputs, of the kind that the name's endings say."""
    y = block()
    times = max(1, size // y.nbytes)
    shape = (times * ROWS, TOKENS, COORDINATES)
    with WRITERS[path.name.split(".", 1)[1]](path, shape) as put:
        for i in range(times):
            put(i * ROWS, y)
    return shape


def npy_header(shape):
    from io import BytesIO

    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@contextmanager
def npy(path, shape):
    with open(path, "wb") as file:
        file.write(npy_header(shape))
        yield lambda i, y: file.write(y.tobytes())


@contextmanager
def npz(path, shape, compression=zipfile.ZIP_STORED):
    with (
        zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive,
        archive.open("outputs.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy_header(shape))
        yield lambda i, y: file.write(y.tobytes())


def deflated(path, shape):
    return npz(path, shape, zipfile.ZIP_DEFLATED)


@contextmanager
def nc(path, shape):
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = dict(zip(("network", "token", "coordinate"), shape, strict=True))
        variable = file.create_variable("outputs", ("network", "token", "coordinate"), np.float32)

        def put(i, y):
            variable[i : i + len(y)] = y

        yield put


@contextmanager
def zarr(path, shape):
    import zarr as library

    array = library.open_group(path, mode="w").create_array("outputs", shape=shape, dtype="f4", chunks=(ROWS, *shape[1:]))

    def put(i, y):
        array[i : i + len(y)] = y

    yield put


@contextmanager
def safetensors(path, shape):
    """The format by hand, since the library writes only what memory holds."""
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * int(np.prod(shape))]}
    header = json.dumps({"outputs": entry}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        yield lambda i, y: file.write(y.tobytes())


WRITERS = {"npy": npy, "npz": npz, "deflated.npz": deflated, "nc": nc, "zarr": zarr, "safetensors": safetensors}


def read_elsewhere(*paths):
    """Read files in a process of their own: for each (path, megabytes before, peak megabytes so far, networks, sha256)."""
    done = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], check=True, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


if __name__ == "__main__":
    gigabytes, *kinds = sys.argv[1:]
    for kind in kinds or WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / ("y." + ("deflated.npz" if kind == "deflated" else kind))
            write(target, int(float(gigabytes) * 1e9))
            start = time.perf_counter()
            [(_, before, peak, networks, _)] = read_elsewhere(target)
            seconds = time.perf_counter() - start
            memory = f"peak {peak} MB, imports alone {before} MB"
            print(f"{kind}: {gigabytes} GB, {networks} networks: {memory}, {seconds:.0f} s", flush=True)
