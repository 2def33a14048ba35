"""UPMRI's own HDF5: every field of a Scan or a Reconstruction, bit for bit.

The root carries the attributes ``upmri`` ("scan" or "reconstruction") and ``version``. Arrays are datasets under the
names of their fields, absent when the field is None; everything else is one JSON text, the dataset ``header``. Arrays
are chunked by their first axis and checksummed, not compressed: one slice is one read, and a flipped bit is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import atomic, guard
from upmri.formats.source import Source

READS = "HDF5 written by UPMRI"
VERSION = 1
_HEADER_BYTES = 2**24
_SCAN_ARRAYS = ("kspace", "mask", "maps", "reference")
_SCAN_HEADER = ("noise", "spacing", "name", "meta")
_RECONSTRUCTION_ARRAYS = ("image", "samples", "std", "reference")
_RECONSTRUCTION_HEADER = ("method", "settings", "seconds", "versions", "spacing", "name", "meta")
_LATER = {"versions"}  # which the first files do not have


def write_scan(scan: Scan, path: Path, *, overwrite: bool = False) -> Path:
    """Write a scan to ``path``, which ends in .h5, so that :func:`upmri.load` gives back the same."""
    if path.suffix.lower() != ".h5":
        raise InputError(f"{path}: expected a name that ends in .h5 for a scan")
    with atomic.staged(path, overwrite=overwrite) as stage:
        _write(scan, stage, "scan", _SCAN_ARRAYS, _SCAN_HEADER)
    return path


def write_reconstruction(rec: Reconstruction, path: Path) -> None:
    """Write all of a reconstruction to ``path``, so that :func:`read_reconstruction` gives back the same."""
    _write(rec, path, "reconstruction", _RECONSTRUCTION_ARRAYS, _RECONSTRUCTION_HEADER)


def _write(
    noun: Scan | Reconstruction, path: Path, kind: str, arrays: tuple[str, ...], fields: tuple[str, ...]
) -> None:
    import h5py

    header = json.dumps({name: getattr(noun, name) for name in fields}).encode()
    if len(header) > _HEADER_BYTES:
        raise InputError(f"meta: expected at most {_HEADER_BYTES} bytes as JSON, got {len(header)}")
    with h5py.File(path, "w", locking="best-effort") as file:
        file.attrs["upmri"], file.attrs["version"] = np.bytes_(kind), VERSION
        file["header"] = np.bytes_(header)
        for name in arrays:
            tensor: Tensor | None = getattr(noun, name)
            if tensor is not None:
                chunks = (1, *tensor.shape[1:])
                file.create_dataset(name, data=tensor.numpy(), chunks=chunks, fletcher32=True)


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell whether it is HDF5 with the mark of UPMRI."""
    if not guard.is_hdf5(path):
        return False
    with guard.open_hdf5(path) as file:
        return "upmri" in file.attrs


def open_source(path: Path, max_bytes: int) -> Source:
    """Open a scan written by :func:`write_scan`."""
    return NativeSource(path, max_bytes)


class NativeSource(Source):
    """A scan in UPMRI's own HDF5; slices are read one by one, without the others."""

    format = "UPMRI HDF5"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._file = guard.open_hdf5(path)
        try:
            self._header, self._arrays = _open(self._file, "scan", _SCAN_ARRAYS, _SCAN_HEADER)
            kspace = _required(self._arrays, "kspace", 4)
            _required(self._arrays, "mask", 3)
            self.slices, self.coils, *matrix = kspace.shape
            self.matrix = (matrix[0], matrix[1])
            for name, array in self._arrays.items():
                if array.shape[:1] != (self.slices,):
                    raise InputError(f"{name}: expected {self.slices} slices like kspace, got shape {array.shape}")
            self.slice_bytes = sum(map(guard.declared_bytes, self._arrays.values())) // self.slices
        except BaseException:
            self.close()
            raise

    def _read(self, keep: slice) -> Scan:
        fields = dict(self._header)
        for name, array in self._arrays.items():
            fields[name] = guard.read(array, keep, max_bytes=self.max_bytes)
        return self._part(Scan(**fields), keep)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read_reconstruction(path: Path, max_bytes: int) -> Reconstruction:
    """Read what :func:`write_reconstruction` wrote."""
    with guard.open_hdf5(path) as file:
        header, arrays = _open(file, "reconstruction", _RECONSTRUCTION_ARRAYS, _RECONSTRUCTION_HEADER)
        _required(arrays, "image", 3)
        guard.check_bytes("its arrays", sum(map(guard.declared_bytes, arrays.values())), max_bytes)
        fields = header | {name: guard.read(array, max_bytes=max_bytes) for name, array in arrays.items()}
        return Reconstruction(**fields)


def _open(
    file: Any, kind: str, arrays: tuple[str, ...], fields: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the datasets of a file that holds a noun of this kind."""
    mark, version = guard.attribute(file, "upmri"), guard.attribute(file, "version")
    if mark != kind.encode():
        got = mark.decode(errors="replace") if isinstance(mark, bytes) else "other HDF5"
        raise InputError(f"expected a {kind} written by UPMRI, got {got}")
    if version != VERSION:
        raise InputError(f"expected version {VERSION} of UPMRI's HDF5, got {version}")
    stored = guard.dataset(file, "header")
    if stored is None or stored.dtype.kind != "S" or stored.shape != ():
        raise InputError("header: expected a JSON text")
    header = json.loads(guard.read(stored, max_bytes=_HEADER_BYTES).item())
    if not isinstance(header, dict) or not set(fields) - _LATER <= set(header) <= set(fields):
        raise InputError(f"header: expected JSON with {', '.join(fields)}")
    found = {name: guard.dataset(file, name) for name in arrays}
    return header, {name: data for name, data in found.items() if data is not None}


def _required(arrays: dict[str, Any], name: str, axes: int) -> Any:
    if name not in arrays or len(arrays[name].shape) != axes or 0 in arrays[name].shape:
        raise InputError(f"{name}: expected a dataset of {axes} axes, there is none")
    return arrays[name]
