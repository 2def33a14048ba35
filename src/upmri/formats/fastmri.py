"""fastMRI's HDF5 with multi-coil k-space, brain and knee.

``kspace`` (slice, coil, readout, phase) comes with an ISMRMRD header in XML. It is changed as follows:

- The readout is oversampled. It is cropped to the reconstructed size in image space, k-space in and k-space out, so
  that its image is the file's own image without the empty half.
- The phase axis stays as it was measured: a crop in image space would smear the sampled lines over all others.
- Columns outside the limits that the header gives were never measured but padded with zeros. The mask is False there,
  and for columns that are 0 in every coil; ``meta["padding"]`` is (first measured column, first after them). Should any
  outside hold something, it is set to 0 as fastMRI does, and ``meta["discarded_columns"]`` counts them.
- ``reconstruction_rss`` is the reference where it has the size of the image. fastMRI crops it along the phase axis, too
  (knee 368 to 320, brain 396 to 384). The reference is then the same root sum of squares of the same k-space on all
  columns, if it agrees with the stored one on those that both have, and else none: k-space was undersampled
  afterwards. ``meta["recon_matrix"]`` is the size to crop both to for the numbers that fastMRI reports.

The patient's identifier, which the file has as an attribute, is not read. The header and the attribute ``acquisition``
are text of variable length, which a damaged file can make HDF5 read for ever: HDF5 is asked only where it lies, and
:mod:`upmri.formats.text` reads it.
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
from upmri.formats import guard, hdf5, text
from upmri.formats.mrd_header import Encoding, MrdHeader
from upmri.physics.fourier import ifft2c, middle, without_oversampling

READS = "fastMRI's multi-coil HDF5"
_AGREES = 0.01  # relative; the stored reference is that of the same k-space up to rounding


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with k-space in its root."""
    return hdf5.matches(path, lambda file: hdf5.has_link(file, "kspace"))


class FastMRISource(hdf5.Hdf5Source):
    """A fastMRI file; slices are read, and their oversampling removed, one by one."""

    format = "fastMRI HDF5"

    def _open(self) -> None:
        kspace = hdf5.find_array(self._file, "kspace")
        if kspace is None or kspace.dtype.kind != "c" or len(kspace.shape) != 4 or 0 in kspace.shape:
            raise InputError(f"expected complex (slice, coil, readout, phase), got {kspace or 'none'}", field="kspace")
        with self.path.open("rb") as raw:
            xml = text.read_text(self._file, raw, "ismrmrd_header")
            acquisition = text.read_text_attribute(self._file, raw, "acquisition")
        if xml is None:
            raise InputError(
                "there is none; without it the oversampling and the padding of k-space are not known "
                "(k-space that has neither is read with --axes slice,coil,readout,phase)",
                field="ismrmrd_header",
            )
        self._kspace = kspace
        self.slices, self.coils, self._readout, columns = kspace.shape
        header = MrdHeader(xml, "ismrmrd_header")
        encoding = header.encoding(0)
        recon = encoding.matrix("reconSpace")
        self.matrix = min(recon[0], self._readout), columns
        self._measured = _measured(encoding, columns)
        self._spacing = self._voxel(encoding, recon[2])
        self._mask = self._read_mask(columns)
        self._reference = hdf5.find_array(self._file, "reconstruction_rss")
        self.slice_bytes = kspace.nbytes // self.slices
        if self._reference is not None:
            shape = self._reference.shape
            if self._reference.dtype.kind != "f" or len(shape) != 3 or shape[0] != self.slices:
                raise InputError(
                    f"expected magnitudes of {self.slices} slices like kspace, got {self._reference}",
                    field="reconstruction_rss",
                )
            self.slice_bytes += self._reference.nbytes // self.slices
        self._meta = self._describe(recon, acquisition) | ({"scanner": facts} if (facts := header.scanner) else {})

    def _read_mask(self, columns: int) -> Tensor:
        """Return which columns were sampled: those measured, and of these only those of the mask, if there is one."""
        mask = torch.zeros(columns, dtype=torch.bool)
        mask[self._measured] = True
        stored = hdf5.find_array(self._file, "mask")
        if stored is not None:
            if math.prod(stored.shape) != columns or stored.dtype.kind not in "biuf":
                raise InputError(f"expected {columns} numbers, one per column, got {stored}", field="mask")
            mask &= torch.from_numpy(stored.read(max_bytes=self.max_bytes).reshape(columns) != 0)
        return mask

    def _read(self, keep: slice) -> Scan:
        rows = range(keep.start, keep.stop, keep.step)
        kspace = torch.empty(len(rows), self.coils, *self.matrix, dtype=torch.complex64)
        stray = torch.zeros(self.matrix[1], dtype=torch.bool)
        for out, row in zip(kspace, rows, strict=True):
            stored = self._kspace.read(slice(row, row + 1, 1), max_bytes=self.max_bytes)[0]
            raw = torch.from_numpy(guard.single(stored))
            stray |= fields.has_samples(raw, 0, 1)
            out[:] = without_oversampling(raw, self.matrix[0], -2)
        stray[self._measured] = False
        meta = dict(self._meta)
        if stray.any():
            kspace[..., stray] = 0
            meta["discarded_columns"] = int(stray.sum())
        mask = self._mask & fields.has_samples(kspace, 1, 2)[:, None]
        reference = None
        if self._reference is not None:
            stored = self._reference.read(keep, max_bytes=self.max_bytes)
            reference = _on_grid(stored, kspace)
            if reference is None:
                meta["reference"] = f"left out: reconstruction_rss {stored.shape[1:]} is not of this size and k-space"
        scan = Scan(kspace=kspace, mask=mask, reference=reference, spacing=self._spacing, name=self.name, meta=meta)
        return self._part(scan, keep)

    def _voxel(self, encoding: Encoding, slices: int) -> tuple[float, float, float] | None:
        """Return the size of a voxel: the encoded field of view over the encoded points, the slice's thickness."""
        readout, phase, _ = encoding.field_of_view("encodedSpace")
        thickness = encoding.field_of_view("reconSpace")[2]
        spacing = (readout / self._readout, phase / self.matrix[1], thickness / slices)
        return spacing if all(math.isfinite(length) and length > 0 for length in spacing) else None

    def _describe(self, recon: tuple[int, int, int], acquisition: str | None) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "recon_matrix": list(recon[:2]),
            "padding": [self._measured.start, self._measured.stop],
        }
        if acquisition is not None:
            meta["acquisition"] = acquisition
        for name in ("max", "norm"):
            value = hdf5.short_attribute(self._file, name)
            if isinstance(value, np.number) and np.isfinite(value):
                meta[name] = float(value)
        return meta


open_source = FastMRISource


def _measured(encoding: Encoding, columns: int) -> slice:
    """Return the columns of k-space that were measured, not padded with zeros."""
    limits = "encodingLimits/kspace_encoding_step_1"
    left = encoding.matrix("encodedSpace")[1] // 2 - encoding.count(f"{limits}/center")
    right = left + encoding.count(f"{limits}/maximum") + 1
    if not 0 <= left < min(right, columns):
        raise InputError(
            f"expected measured columns within the {columns} of kspace, got {left} to {right}",
            field="ismrmrd_header.encodingLimits",
        )
    return slice(left, min(right, columns))


def _on_grid(stored: Any, kspace: Tensor) -> Tensor | None:
    """Return the reference (slice, readout, phase) on the grid of k-space; None if it is not of this k-space."""
    stored = torch.from_numpy(guard.single(stored, np.float32))
    if stored.shape[1:] == kspace.shape[2:]:
        return stored
    rss = torch.stack([ifft2c(one).abs().square().sum(0).sqrt() for one in kspace])
    one, other = middle(rss, *stored.shape[1:]), middle(stored, *rss.shape[1:])
    return rss if bool((one - other).norm() <= _AGREES * other.norm()) else None
