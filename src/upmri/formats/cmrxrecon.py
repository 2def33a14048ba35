"""CMRxRecon's multi-coil k-space: MATLAB 7.3 files, which are HDF5, of the challenges from 2023 on.

One variable a file: ``kspace_full`` (2023, 2024) or ``kspace`` (2025), ``kspace_sub04``, ``kspace_sub08`` or
``kspace_sub10`` (2023), ``kus`` (2024 on). MATLAB's (kx, ky, coil, slice, frame or weight) lies reversed in HDF5, and
axes of length 1 at its end are missing there; kx becomes the readout and ky the phase axis.

Frames of a cine and weights of a mapping lie along the slice axis of a Scan in the order of the file, slices fastest:
number = frame · slices + slice. ``meta["axes"]`` gives both lengths, slowest first: with {"frame": 12, "slice": 10},
``slices="3::10"`` is slice 3 through all frames and ``slices="0:10"`` the first frame.

The mask is found from the zeros of k-space, which the organisers made by multiplication with it. There is also a file
with the mask, but it marks lines that the scanner had filled with zeros, too, and it is often in another folder.

``meta["nominal_acceleration"]`` is what the variable (2023) or the file's name (2024 on) says. It does not count the
calibration lines, so the true one (:attr:`upmri.Scan.acceleration`) is lower.
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
from upmri.formats import guard, hdf5

READS = "CMRxRecon's multi-coil MATLAB 7.3"
_MATLAB = b"MATLAB 7.3 MAT-file"
# Variables with k-space, and the challenges that used them.
_YEARS = {
    "kspace_full": "2023 or 2024",
    **dict.fromkeys(("kspace_sub04", "kspace_sub08", "kspace_sub10"), "2023"),
    "kus": "2024 or 2025",
    "kspace": "2025",
}
_NAMES = tuple(_YEARS)
_OTHERS = {
    "a mask, which is found from k-space itself": ("mask", "mask04", "mask08", "mask10"),
    "single-coil k-space": ("kspace_single_full", "kspace_single_sub04", "kspace_single_sub08", "kspace_single_sub10"),
}


def recognise(path: Path, head: bytes) -> bool:
    """Return whether it is HDF5 that MATLAB wrote, or has a variable that only this challenge has."""
    return hdf5.matches(
        path, lambda file: head.startswith(_MATLAB) or any(hdf5.has_link(file, name) for name in _NAMES[:-1])
    )


class CMRxReconSource(hdf5.Hdf5Source):
    """A CMRxRecon file; only the frames and slices that are wanted are read."""

    def _open(self) -> None:
        self._kspace = _find_kspace(self._file)
        self.format = f"CMRxRecon {_YEARS[self._kspace.name]}, MATLAB 7.3"
        shape, dtype = self._kspace.shape, self._kspace.dtype
        if not (_is_complex(dtype) and 3 <= len(shape) <= 5 and 0 not in shape):
            raise InputError(
                f"expected complex ([frame,] [slice,] coil, ky, kx), got {self._kspace}", field=self._kspace.name
            )
        self._frames, self._per_frame, self.coils, columns, rows = (1,) * (5 - len(shape)) + shape
        self.slices, self.matrix = self._frames * self._per_frame, (rows, columns)
        self.slice_bytes = self.coils * rows * columns * max(8, dtype.itemsize)

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = np.empty((len(wanted), self.coils, *self.matrix), dtype=np.complex64)
        done = 0
        for frame, numbers in groupby(wanted, key=lambda number: number // self._per_frame):
            slices = [number % self._per_frame for number in numbers]
            part = (frame, slice(slices[0], slices[-1] + 1, keep.step))[5 - len(self._kspace.shape) :]
            stored = self._kspace.read(*part, max_bytes=self.max_bytes)
            _fill(kspace[done : done + len(slices)], stored.reshape(len(slices), *self._kspace.shape[-3:]))
            done += len(slices)
        return Scan(kspace=torch.from_numpy(kspace), name=self.name, meta=self._describe())

    def _describe(self) -> dict[str, Any]:
        slow = "weight" if re.match(r"t1rho|t[12](map|w)", self.name.lower()) else "frame"
        meta: dict[str, Any] = {"variable": self._kspace.name, "axes": {slow: self._frames, "slice": self._per_frame}}
        nominal = re.search(r"_sub()(\d+)$", self._kspace.name) or re.search(r"_kus_([A-Za-z]+)(\d{1,3})$", self.name)
        if nominal:
            meta["nominal_acceleration"] = int(nominal[2])
            meta |= {"pattern": nominal[1]} if nominal[1] else {}
        return meta


open_source = CMRxReconSource


def _find_kspace(file: Any) -> hdf5.StoredArray:
    """Return the one variable with k-space."""
    there = [name for name in _NAMES if hdf5.has_link(file, name)]
    found = hdf5.find_array(file, there[0]) if len(there) == 1 else None
    if found is not None:
        return found
    got = " and ".join(there)
    for what, names in _OTHERS.items():
        if not got and any(hdf5.has_link(file, name) for name in names):
            got = what
    raise InputError(f"expected one variable of {', '.join(_NAMES)}, got {got or 'none of them'}")


def _is_complex(dtype: np.dtype[Any]) -> bool:
    """Return whether it is complex or, as MATLAB writes it, a pair of equal floating-point types, real and imag."""
    if dtype.fields is None:
        return dtype.kind == "c"
    parts = {name: field[0] for name, field in dtype.fields.items()}
    return set(parts) == {"real", "imag"} and parts["real"] == parts["imag"] and parts["real"].kind == "f"


def _fill(out: NDArray[Any], stored: NDArray[Any]) -> None:
    """Copy (slice, coil, ky, kx) to complex (slice, coil, kx, ky)."""
    stored = stored.swapaxes(-1, -2)
    if stored.dtype.fields is None:
        out[:] = guard.single(stored)
    else:
        out.real, out.imag = (guard.single(stored[part], np.float32) for part in ("real", "imag"))
