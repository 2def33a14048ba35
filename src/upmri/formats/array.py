"""NumPy's .npy and .npz: k-space as (coil, readout, phase) or (slice, coil, readout, phase), complex.

An .npz names its arrays as the fields of a :class:`~upmri.core.scan.Scan`: ``kspace``, and if wanted ``mask``,
``maps``, ``reference``, ``noise``, ``spacing``, ``name``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard
from upmri.formats.source import Source

READS = "NumPy .npy or .npz with complex k-space"
_NPY = b"\x93NUMPY"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_AXES = {"kspace": 4, "mask": 3, "maps": 4, "reference": 3}
_SINGLE = ("noise", "spacing", "name")


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell whether it begins like .npy or, as .npz does, like a zip archive."""
    return head.startswith((_NPY, *_ZIP))


def open_source(path: Path, max_bytes: int) -> Source:
    """Open an .npy or .npz file."""
    return NpySource(path, max_bytes) if guard.head(path).startswith(_NPY) else NpzSource(path, max_bytes)


def _dimensions(header: guard.NpyHeader) -> tuple[int, int, int, int]:
    """Return (slice, coil, readout, phase) of what must be complex k-space."""
    if header.dtype.kind != "c" or len(header.shape) not in (3, 4) or 0 in header.shape:
        raise InputError(
            "kspace: expected a complex array (coil, readout, phase) or (slice, coil, readout, phase), "
            f"got {header.dtype} {header.shape}"
        )
    slices, coils, readout, phase = (1, *header.shape)[-4:]
    return slices, coils, readout, phase


class NpySource(Source):
    """An .npy file, mapped into memory for each read and let go after it, so that past slices do not pile up there."""

    format = "NumPy .npy"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._header = guard.npy_header("kspace", guard.head(path), path.stat().st_size)
        self.slices, self.coils, *_ = shape = _dimensions(self._header)
        self.matrix = shape[2:]
        self.slice_bytes = self._header.nbytes // self.slices

    def _read(self, keep: slice) -> Scan:
        header = self._header
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        kspace: Any = np.memmap(self.path, header.dtype, "r", header.offset, header.shape, order)
        kspace = np.array(kspace[None][keep] if kspace.ndim == 3 else kspace[keep])
        return Scan(kspace=kspace, name=self.name)

    def close(self) -> None:
        """Nothing is held between reads."""


class NpzSource(Source):
    """An .npz file; of its arrays only the slices asked for are held in memory."""

    format = "NumPy .npz"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._archive = guard.open_npz(path, max_bytes)
        try:
            entries = {
                entry.filename.removesuffix(".npy"): entry
                for entry in self._archive.infolist()
                if entry.filename.endswith(".npy")
            }
            if "kspace" not in entries:
                raise InputError('expected an .npz archive with an array "kspace", there is none')
            self._ignored = sorted(entries.keys() - {*_AXES, *_SINGLE})
            self._headers: dict[str, guard.NpyHeader] = {}
            for name in entries.keys() - set(self._ignored):
                with self._archive.open(entries[name]) as stream:
                    self._headers[name] = guard.npy_header(name, stream.read(guard.HEAD), entries[name].file_size)
            self.slices, self.coils, *_ = shape = _dimensions(self._headers["kspace"])
            self.matrix = shape[2:]
            self.slice_bytes = sum(header.nbytes for header in self._headers.values()) // self.slices
            self._check_shapes()
        except BaseException:
            self.close()
            raise

    def _check_shapes(self) -> None:
        """Check what a Scan of some slices could no longer see: that all arrays have as many slices as k-space."""
        for name, header in self._headers.items():
            if name in _SINGLE:
                if math.prod(header.shape) > 3 or header.nbytes > 4096:
                    raise InputError(
                        f"{name}: expected one value (three for spacing), got {header.dtype} {header.shape}"
                    )
                continue
            slices = header.shape[0] if len(header.shape) == _AXES[name] else 1
            if slices != self.slices and not (name == "mask" and slices == 1):
                raise InputError(f"{name}: expected {self.slices} slices like kspace, got {header.shape}")

    def _read(self, keep: slice) -> Scan:
        fields: dict[str, Any] = {name: self._take(name, keep) for name in self._headers}
        fields |= {name: fields[name].tolist() for name in _SINGLE if name in fields}
        meta = {"ignored": self._ignored} if self._ignored else {}
        return self._part(Scan(**{"name": self.name, **fields}, meta=meta), keep)

    def _take(self, name: str, keep: slice) -> NDArray[Any]:
        """Read one array, or the slices to keep where it has them; a zip archive is read from front to back."""
        header = self._headers[name]
        sliced = len(header.shape) == _AXES.get(name) and header.shape[0] == self.slices
        with self._archive.open(f"{name}.npy") as stream:
            if header.fortran or not sliced:
                stream.seek(header.offset)
                data = np.frombuffer(stream.read(header.nbytes), dtype=header.dtype)
                array = data.reshape(header.shape, order="F" if header.fortran else "C")
                return array[keep] if sliced else array
            rows = range(keep.start, keep.stop, keep.step)
            part = np.empty((len(rows), *header.shape[1:]), dtype=header.dtype)
            for out, row in zip(part, rows, strict=True):
                stream.seek(header.offset + row * out.nbytes)
                out[:] = np.frombuffer(stream.read(out.nbytes), dtype=header.dtype).reshape(out.shape)
            return part

    def close(self) -> None:
        """Let go of the file."""
        self._archive.close()
