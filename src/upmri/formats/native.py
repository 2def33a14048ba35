"""UPMRI's own HDF5: every field of a Scan or a Reconstruction, bit for bit.

The root carries the attributes ``upmri`` ("scan" or "reconstruction") and ``version``. Arrays are datasets under the
names of their fields, absent when the field is None; everything else is one JSON text, the dataset ``header``. Arrays
are chunked by their first axis and checksummed, not compressed: one slice is one read, and a flipped bit is an error.
Bounds of a reconstruction are the entry ``bounds`` of the header and the dataset ``bounds_lines``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.regular import open_regular
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import atomic, guard, hdf5

READS = "HDF5 written by UPMRI"
VERSION = 1
_HEADER_BYTES = 2**24
_SCAN_ARRAYS = ("kspace", "mask", "maps", "reference")
_SCAN_HEADER = ("noise", "spacing", "name", "meta")
_RECONSTRUCTION_ARRAYS = ("image", "samples", "std", "reference")
_RECONSTRUCTION_HEADER = ("method", "settings", "seconds", "versions", "spacing", "name", "meta")
BOUNDS_LINES = "bounds_lines"
_BOUNDS = "bounds"
_LATER = {"versions", _BOUNDS}  # which the first files, or files without bounds, do not have
# The attribute ``upmri`` of a reconstruction as bytes of a file (name, type, shape, value), and where it ends at most.
_MARK = re.compile(rb"upmri\0\0\0.{16}reconstruction", re.DOTALL)
_MARKED = 4096


def write_scan(scan: Scan, path: Path, *, overwrite: bool = False) -> Path:
    """Write a scan to ``path``, which ends in .h5, so that :func:`upmri.load` gives back the same."""
    if path.suffix.lower() != ".h5":
        raise InputError("expected a name that ends in .h5 for a scan", path=path)
    with atomic.staged(path, overwrite=overwrite) as stage:
        arrays = {name: getattr(scan, name) for name in _SCAN_ARRAYS}
        _write(stage, "scan", arrays, {name: getattr(scan, name) for name in _SCAN_HEADER})
    return path


def write_reconstruction(rec: Reconstruction, path: Path) -> None:
    """Write all of a reconstruction to ``path``, so that :func:`read_reconstruction` gives back the same."""
    header: dict[str, Any] = {name: getattr(rec, name) for name in _RECONSTRUCTION_HEADER}
    arrays: dict[str, Tensor | None] = {name: getattr(rec, name) for name in _RECONSTRUCTION_ARRAYS}
    if rec.bounds is not None:
        header[_BOUNDS], arrays[BOUNDS_LINES] = rec.bounds.header, rec.bounds.lines
    _write(path, "reconstruction", arrays, header)


def _write(path: Path, kind: str, arrays: Mapping[str, Tensor | None], fields: Mapping[str, Any]) -> None:
    import h5py

    header = json.dumps(fields).encode()
    if len(header) > _HEADER_BYTES:
        raise InputError(f"expected at most {_HEADER_BYTES} bytes as JSON, got {len(header)}", field="meta")
    with _Sink(path) as sink, h5py.File(sink, "w") as file:
        file.attrs["upmri"], file.attrs["version"] = np.bytes_(kind), VERSION
        file["header"] = np.bytes_(header)
        for name, tensor in arrays.items():
            if tensor is not None:
                chunks = (1, *tensor.shape[1:])
                file.create_dataset(name, data=tensor.numpy(), chunks=chunks, fletcher32=True)


class _Sink(io.FileIO):
    """A file that HDF5 writes through and that never fails before it is closed.

    On a full disk HDF5 crashes the process when it closes its file. Here the first error is kept, nothing more is
    written, and :meth:`close` raises the error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while self._error is None and done < len(view):
            try:
                done += super().write(view[done:])
            except OSError as error:
                self._error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def close(self) -> None:
        super().close()
        error, self._error = self._error, None
        if error is not None:
            raise error


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with the mark of UPMRI."""
    return hdf5.matches(path, lambda file: hdf5.has_attribute(file, "upmri"))


class NativeSource(hdf5.Hdf5Source):
    """A scan in UPMRI's own HDF5; slices are read one by one, without the others."""

    format = "UPMRI HDF5"

    def _open(self) -> None:
        self._header, self._arrays = _contents(self._file, "scan", _SCAN_ARRAYS, _SCAN_HEADER)
        kspace = _required(self._arrays, "kspace", 4)
        _required(self._arrays, "mask", 3)
        self.slices, self.coils, *matrix = kspace.shape
        self.matrix = (matrix[0], matrix[1])
        for name, array in self._arrays.items():
            if array.shape[:1] != (self.slices,):
                raise InputError(f"expected {self.slices} slices like kspace, got shape {array.shape}", field=name)
        self.slice_bytes = sum(array.nbytes for array in self._arrays.values()) // self.slices

    def _read(self, keep: slice) -> Scan:
        arrays: dict[str, Any] = {
            name: array.read(keep, max_bytes=self.max_bytes) for name, array in self._arrays.items()
        }
        return self._part(Scan(**self._header, **arrays), keep)


open_source = NativeSource


def is_reconstruction(path: Path) -> bool:
    """Return whether a file is a reconstruction by its first bytes, without HDF5: it may be any file of a folder."""
    try:
        with open_regular(path) as file:
            head = file.read(_MARKED)
    except (OSError, InputError):
        return False  # what is wrong with it is an error of its own when it is read
    return head.startswith(b"\x89HDF") and _MARK.search(head) is not None


def read_reconstruction(path: Path, max_bytes: int) -> Reconstruction:
    """Read what :func:`write_reconstruction` wrote."""
    with hdf5.open_hdf5(path) as file:
        names = (*_RECONSTRUCTION_ARRAYS, BOUNDS_LINES)
        header, arrays = _contents(file, "reconstruction", names, (*_RECONSTRUCTION_HEADER, _BOUNDS))
        _required(arrays, "image", 3)
        guard.check_bytes("arrays", sum(array.nbytes for array in arrays.values()), max_bytes)
        stored: dict[str, Any] = {name: array.read(max_bytes=max_bytes) for name, array in arrays.items()}
        return Reconstruction(**with_bounds({**header, **stored}))


def with_bounds(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a reconstruction with its bounds put together from their header and their array."""
    others = {name: value for name, value in values.items() if name not in (_BOUNDS, BOUNDS_LINES)}
    header, lines = values.get(_BOUNDS), values.get(BOUNDS_LINES)
    if header is None and lines is None:
        return others
    if header is None or lines is None:
        raise InputError(f"expected {_BOUNDS} in the header and {BOUNDS_LINES}, got one of them", field=_BOUNDS)
    return {**others, _BOUNDS: Bounds.from_header(header, lines)}


def _contents(
    file: Any, kind: str, arrays: tuple[str, ...], fields: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, hdf5.StoredArray]]:
    """Return the header and the arrays of a file that holds a scan or a reconstruction, by ``kind``."""
    mark, version = hdf5.short_attribute(file, "upmri"), hdf5.short_attribute(file, "version")
    if not (isinstance(mark, bytes) and mark == kind.encode()):
        got = mark.decode(errors="replace") if isinstance(mark, bytes) else "other HDF5"
        raise InputError(f"expected a {kind} written by UPMRI, got {got}")
    if not (isinstance(version, np.integer) and version == VERSION):
        raise InputError(f"expected version {VERSION} of UPMRI's HDF5, got {version}", field="version")
    stored = hdf5.find_array(file, "header")
    if stored is None or stored.dtype.kind != "S" or stored.shape != ():
        raise InputError("expected a JSON text", field="header")
    text = stored.read(max_bytes=_HEADER_BYTES).item()
    with guard.library("header"):
        header = json.loads(text)
    if not isinstance(header, dict) or not set(fields) - _LATER <= set(header) <= set(fields):
        raise InputError(f"expected JSON with {', '.join(fields)}", field="header")
    found = {name: hdf5.find_array(file, name) for name in arrays}
    return header, {name: data for name, data in found.items() if data is not None}


def _required(arrays: dict[str, hdf5.StoredArray], name: str, axes: int) -> hdf5.StoredArray:
    if name not in arrays or len(arrays[name].shape) != axes or 0 in arrays[name].shape:
        raise InputError(f"expected a dataset of {axes} axes, there is none", field=name)
    return arrays[name]
