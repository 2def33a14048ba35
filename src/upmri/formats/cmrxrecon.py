"""CMRxRecon's multi-coil k-space: MATLAB 7.3 files, which are HDF5, of the challenges from 2023 on.

One variable a file: ``kspace_full`` (2023, 2024) or ``kspace`` (2025), ``kspace_sub04``, ``kspace_sub08`` or
``kspace_sub10`` (2023), ``kus`` (2024 on). MATLAB's (kx, ky, coil, slice, frame or weight) lies reversed in HDF5, and
axes of length 1 at its end are missing there; kx becomes the readout and ky the phase axis.

Frames of a cine and weights of a mapping lie along the slice axis of a Scan in the order of the file, slices fastest:
number = frame · slices + slice. ``meta["axes"]`` gives both lengths, slowest first: with {"frame": 12, "slice": 10},
``slices="3::10"`` is slice 3 through all frames and ``slices="0:10"`` the first frame.

The mask is found from the zeros of k-space, which the organisers made by multiplication with it. It lies in a file of
its own, too; but that one also marks lines that the scanner had filled with zeros, and it is often in another folder.

``meta["nominal_acceleration"]`` is what the variable (2023) or the file's name (2024 on) says. It leaves the
calibration lines out of account, so the true one (:attr:`upmri.Scan.acceleration`) is lower.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard
from upmri.formats.source import Source

READS = "CMRxRecon's multi-coil MATLAB 7.3"
_MATLAB = b"MATLAB 7.3 MAT-file"
_NAMES = ("kspace_full", "kspace_sub04", "kspace_sub08", "kspace_sub10", "kus", "kspace")
_OTHERS = {
    "a mask, which is found from k-space itself": ("mask", "mask04", "mask08", "mask10"),
    "single-coil k-space": ("kspace_single_full", "kspace_single_sub04", "kspace_single_sub08", "kspace_single_sub10"),
}


def recognise(path: Path, head: bytes) -> bool:
    """Tell whether it is HDF5 that MATLAB wrote, or has a variable that only this challenge has."""
    if not guard.is_hdf5(path):
        return False
    if head.startswith(_MATLAB):
        return True
    with guard.open_hdf5(path) as file:
        return any(file.id.links.exists(name.encode()) for name in _NAMES[:-1])


def open_source(path: Path, max_bytes: int) -> Source:
    """Open a file of a CMRxRecon challenge."""
    return CMRxReconSource(path, max_bytes)


class CMRxReconSource(Source):
    """A CMRxRecon file; only the frames and slices asked for are read."""

    format = "CMRxRecon MATLAB 7.3"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._file = guard.open_hdf5(path)
        try:
            self._variable, self._kspace = _find(self._file)
            shape = self._kspace.shape
            if not (_is_complex(self._kspace.dtype) and 3 <= len(shape) <= 5 and 0 not in shape):
                raise InputError(
                    f"{self._variable}: expected complex ([frame,] [slice,] coil, ky, kx), "
                    f"got {self._kspace.dtype} {shape}"
                )
            self._frames, self._per_frame, self.coils, columns, rows = (1,) * (5 - len(shape)) + shape
            self.slices, self.matrix = self._frames * self._per_frame, (rows, columns)
            self.slice_bytes = self.coils * rows * columns * max(8, self._kspace.dtype.itemsize)
        except BaseException:
            self.close()
            raise

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = np.empty((len(wanted), self.coils, *self.matrix), dtype=np.complex64)
        done = 0
        for frame, numbers in groupby(wanted, key=lambda number: number // self._per_frame):
            slices = [number % self._per_frame for number in numbers]
            part = (frame, slice(slices[0], slices[-1] + 1, keep.step))[5 - len(self._kspace.shape) :]
            stored = guard.read_part(self._kspace, part, max_bytes=self.max_bytes)
            _fill(kspace[done : done + len(slices)], stored.reshape(len(slices), *self._kspace.shape[-3:]))
            done += len(slices)
        return Scan(kspace=torch.from_numpy(kspace), name=self.name, meta=self._describe())

    def _describe(self) -> dict[str, Any]:
        slow = "weight" if re.match(r"t[12](map|w)", self.name.lower()) else "frame"
        meta: dict[str, Any] = {"variable": self._variable, "axes": {slow: self._frames, "slice": self._per_frame}}
        nominal = re.search(r"_sub()(\d+)$", self._variable) or re.search(r"_kus_([A-Za-z]+)(\d{1,3})$", self.name)
        if nominal:
            meta["nominal_acceleration"] = int(nominal[2])
            meta |= {"pattern": nominal[1]} if nominal[1] else {}
        return meta

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _find(file: Any) -> tuple[str, Any]:
    """Return the name and the dataset of the one variable with k-space."""
    there = [name for name in _NAMES if file.id.links.exists(name.encode())]
    if len(there) == 1:
        return there[0], guard.dataset(file, there[0])
    got = " and ".join(there)
    for what, names in _OTHERS.items():
        if not got and any(file.id.links.exists(name.encode()) for name in names):
            got = what
    raise InputError(f"expected one variable of {', '.join(_NAMES)}, got {got or 'none of them'}")


def _is_complex(dtype: np.dtype[Any]) -> bool:
    """Tell whether it is complex, or as MATLAB writes it a pair of equal floating-point numbers, real and imag."""
    if dtype.fields is None:
        return dtype.kind == "c"
    parts = {name: field[0] for name, field in dtype.fields.items()}
    return set(parts) == {"real", "imag"} and parts["real"] == parts["imag"] and parts["real"].kind == "f"


def _fill(out: NDArray[Any], stored: NDArray[Any]) -> None:
    """Copy (slice, coil, ky, kx) to complex (slice, coil, kx, ky)."""
    stored = stored.swapaxes(-1, -2)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which a Scan refuses
        if stored.dtype.fields is None:
            out[:] = stored
        else:
            out.real, out.imag = stored["real"], stored["imag"]
