"""Arrays in NumPy's .npy and .npz files: their headers checked, their bytes read, nothing ever unpickled."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard

NPY = b"\x93NUMPY"  # the first bytes of .npy
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # and of .npz, a zip archive


@dataclass(frozen=True)
class NpyHeader:
    """What an .npy file says about its array ``name``, which begins ``offset`` bytes into it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    offset: int

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(name: str, first: bytes, size: int) -> NpyHeader:
    """Parse the header in the first bytes of an .npy file of ``size`` bytes, and check that its array fits in there."""
    stream = io.BytesIO(first[: guard.HEAD])
    parsers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with guard.library(name):
        version = np.lib.format.read_magic(stream)
    if version not in parsers:
        raise InputError(f"expected version 1.0 or 2.0 of .npy, got {version[0]}.{version[1]}", field=name)
    with guard.library(name):
        shape, fortran, dtype = parsers[version](stream)
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
        raise InputError(f"expected an array of numbers, got {dtype}; pickled objects are never loaded", field=name)
    if any(length < 0 for length in shape):
        raise InputError(f"declares the impossible shape {shape}", field=name)
    header = NpyHeader(name, shape, dtype, "F" if fortran else "C", stream.tell())
    if header.offset + header.nbytes > size:
        raise InputError(
            f"cut short; the header declares {header.nbytes} bytes of {dtype} {shape}, "
            f"there are {size - header.offset}",
            field=name,
        )
    return header


def open_npz(path: Path, max_bytes: int) -> zipfile.ZipFile:
    """Open an .npz file whose every entry is of a kind and size that may be read."""
    with guard.library():
        archive = zipfile.ZipFile(path)
    try:
        for entry in archive.infolist():
            if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError("expected an entry as numpy.savez writes it", field=entry.filename)
            guard.check_bytes(entry.filename, entry.file_size, max_bytes)
            guard.check_fold(entry.filename, entry.file_size, entry.compress_size)
    except InputError:
        archive.close()
        raise
    return archive


def npz_header(archive: zipfile.ZipFile, name: str) -> NpyHeader:
    """Return the header of an array of an .npz file."""
    with guard.library(name):
        entry = archive.getinfo(f"{name}.npy")
        with archive.open(entry) as stream:
            first = stream.read(guard.HEAD)
    return npy_header(name, first, entry.file_size)


def read_npz(archive: zipfile.ZipFile, header: NpyHeader, keep: slice | None = None) -> NDArray[Any]:
    """Read an array of an .npz file, or some of its first axis: start:stop:step, all ≥ 0.

    A zip archive is read from its beginning to its end; parts that are not needed are not held in memory, unless the
    array lies in column-major order.
    """
    with guard.library(header.name):
        stream = archive.open(f"{header.name}.npy")
    with stream:
        if keep is None or header.order == "F":
            array = _read_at(stream, header, header.offset, header.shape, header.order)
            return array if keep is None else array[keep]
        rows = range(keep.start, keep.stop, keep.step)
        part = np.empty((len(rows), *header.shape[1:]), dtype=header.dtype)
        for out, row in zip(part, rows, strict=True):
            out[...] = _read_at(stream, header, header.offset + row * out.nbytes, out.shape, "C")
        return part


def _read_at(
    stream: IO[bytes], header: NpyHeader, offset: int, shape: tuple[int, ...], order: Literal["C", "F"]
) -> NDArray[Any]:
    count = math.prod(shape) * header.dtype.itemsize
    with guard.library(header.name):
        stream.seek(offset)
        raw = stream.read(count)
    if len(raw) != count:
        raise InputError(f"damaged: expected {count} bytes from byte {offset} on, got {len(raw)}", field=header.name)
    return np.ndarray(shape, header.dtype, raw, order=order)
