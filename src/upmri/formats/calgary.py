"""Calgary-Campinas multi-channel brains (MC-MRRec challenge): HDF5 with 3-D k-space whose readout is transformed.

The layout is that of the challenge's documentation and of programs that read it; no real file was available here.

- ``kspace`` is real, (x, ky, kz, 2 · coil), 256 × 218 × 170 to 180 × 24 (12 coils) or × 64 (32 coils): real and
  imaginary part of a coil lie beside each other. The scanner has transformed the readout, so each x is a slice of
  (ky, kz), and is read alone.
- DC lies in the middle of the array, and the image is the plain inverse FFT, without shifts: k-space has a factor that
  moves the image by half a field of view. It is removed here, so that the centred transform gives the same image.
- kz was sampled up to 85 % of its length and filled with zeros. What lies beyond is left out, and counted in
  ``meta["discarded_columns"]`` where it is not 0.
- The mask is found from the zeros; voxels are of 1 mm.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.core import fields
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard, hdf5

READS = "Calgary-Campinas's multi-channel HDF5"
_SAMPLED = 0.85  # of kz
_SPACING = (1.0, 1.0, 1.0)


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with real k-space of four axes, the last of even length."""
    return hdf5.matches(path, _matches)


def _matches(file: Any) -> bool:
    if not hdf5.has_link(file, "kspace") or hdf5.has_link(file, "ismrmrd_header"):
        return False
    try:
        kspace = hdf5.find_array(file, "kspace")
    except InputError:  # another reader says what is wrong with it
        return False
    return kspace is not None and kspace.dtype.kind == "f" and len(kspace.shape) == 4 and kspace.shape[3] % 2 == 0


class CalgarySource(hdf5.Hdf5Source):
    """A Calgary-Campinas file; slices, positions along the readout, are read one by one."""

    format = "Calgary-Campinas HDF5"

    def _open(self) -> None:
        kspace = hdf5.find_array(self._file, "kspace")
        if kspace is None or 0 in kspace.shape:
            raise InputError(f"expected real (x, ky, kz, 2 · coil), got {kspace or 'none'}", field="kspace")
        self._kspace = kspace
        self.slices, *size, channels = kspace.shape
        self.coils, self.matrix = channels // 2, (size[0], size[1])
        self.slice_bytes = self.coils * math.prod(size) * max(8, 2 * kspace.dtype.itemsize)
        self._factor = _half_shift(size[0])[:, None] * _half_shift(size[1])
        self._end = math.ceil(_SAMPLED * size[1])

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = torch.empty(len(wanted), self.coils, *self.matrix, dtype=torch.complex64)
        beyond = torch.zeros(self.matrix[1], dtype=torch.bool)
        for out, row in zip(kspace, wanted, strict=True):
            stored = self._kspace.read(slice(row, row + 1, 1), max_bytes=self.max_bytes)[0]
            pairs = np.ascontiguousarray(guard.single(stored, np.float32))
            plane = torch.view_as_complex(torch.from_numpy(pairs).unflatten(-1, (self.coils, 2)))
            out[:] = plane.movedim(-1, 0) * self._factor
            beyond |= fields.has_samples(out, 0, 1)
        beyond[: self._end] = False
        kspace[..., self._end :] = 0
        meta: dict[str, Any] = {"axes": {"readout": self.slices}} if self.slices > 1 else {}
        meta |= {"discarded_columns": int(beyond.sum())} if beyond.any() else {}
        return self._part(Scan(kspace=kspace, spacing=_SPACING, name=self.name, meta=meta), keep)


open_source = CalgarySource


def _half_shift(length: int) -> Tensor:
    """exp(2πi (k − c) c / N), c = N // 2: moves the origin of the image from its first pixel to its centre."""
    middle = length // 2
    turns = ((torch.arange(length) - middle) * middle % length).double() / length
    return torch.polar(torch.ones_like(turns), 2 * math.pi * turns).to(torch.complex64)
