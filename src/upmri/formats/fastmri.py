"""fastMRI's HDF5 with multi-coil k-space, brain and knee.

``kspace`` (slice, coil, readout, phase) comes with an ISMRMRD header in XML. What becomes of it:

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
are text of variable length, which a damaged file can make HDF5 read for ever: HDF5 tells only where it lies, and
:mod:`upmri.formats.text` follows it.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard, text
from upmri.formats.source import Source
from upmri.physics.fourier import fft1c, ifft1c, ifft2c

READS = "fastMRI's multi-coil HDF5"
_MOST = 2**16 - 1  # ISMRMRD counts in 16 bits
_AGREES = 0.01  # relative; the stored reference is that of the same k-space up to rounding


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell whether it is HDF5 with k-space in its root."""
    if not guard.is_hdf5(path):
        return False
    with guard.open_hdf5(path) as file:
        return bool(file.id.links.exists(b"kspace"))


def open_source(path: Path, max_bytes: int) -> Source:
    """Open a file of the fastMRI data set, or one of its form."""
    return FastMRISource(path, max_bytes)


@dataclass(frozen=True)
class Header:
    """What of the ISMRMRD header is needed: sizes as (x, y, z), fields of view in mm, the measured columns."""

    encoded: tuple[int, int, int]
    recon: tuple[int, int, int]
    encoded_fov: tuple[float, float, float]
    recon_fov: tuple[float, float, float]
    left: int
    right: int


def parse(xml: str) -> Header:
    """Read an ISMRMRD header; no entity in it is ever expanded, as none is let in."""
    if "<!DOCTYPE" in xml or "<!ENTITY" in xml:
        raise InputError("ismrmrd_header: expected XML without a document type and entities")
    root = ET.fromstring(xml)  # noqa: S314
    encoded = _sizes(root, "encodedSpace")
    center = _count(root, "encodingLimits/kspace_encoding_step_1/center", 0)
    maximum = _count(root, "encodingLimits/kspace_encoding_step_1/maximum", 0)
    left = encoded[1] // 2 - center
    return Header(
        encoded=encoded,
        recon=_sizes(root, "reconSpace"),
        encoded_fov=_fov(root, "encodedSpace"),
        recon_fov=_fov(root, "reconSpace"),
        left=left,
        right=left + maximum + 1,
    )


def _find(root: ET.Element, path: str) -> str:
    return (root.findtext("/".join(f"{{*}}{tag}" for tag in ("encoding", *path.split("/")))) or "").strip()


def _count(root: ET.Element, path: str, least: int) -> int:
    text = _find(root, path)
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and least <= int(text) <= _MOST):
        raise InputError(f"ismrmrd_header: {path}: expected a number from {least} to {_MOST}, got {text[:40]!r}")
    return int(text)


def _sizes(root: ET.Element, space: str) -> tuple[int, int, int]:
    x, y, z = (_count(root, f"{space}/matrixSize/{axis}", 1) for axis in "xyz")
    return x, y, z


def _fov(root: ET.Element, space: str) -> tuple[float, float, float]:
    x, y, z = (float(_find(root, f"{space}/fieldOfView_mm/{axis}") or "nan") for axis in "xyz")
    return x, y, z


class FastMRISource(Source):
    """A fastMRI file; slices are read, and freed of their oversampling, one by one."""

    format = "fastMRI HDF5"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._file = guard.open_hdf5(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        kspace = guard.dataset(self._file, "kspace")
        if kspace is None or kspace.dtype.kind != "c" or len(kspace.shape) != 4 or 0 in kspace.shape:
            got = "none" if kspace is None else f"{kspace.dtype} {kspace.shape}"
            raise InputError(f"kspace: expected complex (slice, coil, readout, phase), got {got}")
        with self.path.open("rb") as raw:
            xml, acquisition = (
                text.dataset(self._file, raw, "ismrmrd_header"),
                text.attribute(self._file, raw, "acquisition"),
            )
        if xml is None:
            raise InputError(
                "ismrmrd_header: there is none; without it the oversampling and the padding of k-space are not known "
                "(k-space that has neither can be loaded as .npy)"
            )
        self._kspace, self._header = kspace, parse(xml)
        self.slices, self.coils, self._readout, columns = kspace.shape
        self.matrix = min(self._header.recon[0], self._readout), columns
        left, right = self._header.left, min(self._header.right, columns)
        if not 0 <= left < right:
            raise InputError(
                f"ismrmrd_header: encodingLimits: expected measured columns within the {columns} of kspace, "
                f"got {left} to {self._header.right}"
            )
        self._measured = slice(left, right)
        self._mask = self._read_mask(columns)
        self._reference = guard.dataset(self._file, "reconstruction_rss")
        self.slice_bytes = guard.declared_bytes(kspace) // self.slices
        if self._reference is not None:
            kind, shape = self._reference.dtype, self._reference.shape
            if kind.kind != "f" or len(shape) != 3 or shape[0] != self.slices:
                raise InputError(
                    f"reconstruction_rss: expected magnitudes of {self.slices} slices like kspace, got {kind} {shape}"
                )
            self.slice_bytes += guard.declared_bytes(self._reference) // self.slices
        self._meta = self._describe(acquisition)

    def _read_mask(self, columns: int) -> Tensor:
        """Return which columns were sampled, as far as the file says: those measured, and of these the mask's."""
        mask = torch.zeros(columns, dtype=torch.bool)
        mask[self._measured] = True
        stored = guard.dataset(self._file, "mask")
        if stored is not None:
            if math.prod(stored.shape) != columns or stored.dtype.kind not in "biuf":
                raise InputError(f"mask: expected {columns} numbers, one a column, got {stored.dtype} {stored.shape}")
            mask &= torch.from_numpy(guard.read(stored, max_bytes=self.max_bytes).reshape(columns) != 0)
        return mask

    def _read(self, keep: slice) -> Scan:
        rows = range(keep.start, keep.stop, keep.step)
        kspace = torch.empty(len(rows), self.coils, *self.matrix, dtype=torch.complex64)
        stray = torch.zeros(self.matrix[1], dtype=torch.bool)
        for out, row in zip(kspace, rows, strict=True):
            raw = guard.read(self._kspace, slice(row, row + 1, 1), max_bytes=self.max_bytes)[0]
            with np.errstate(over="ignore"):  # what is too large becomes infinite, which a Scan refuses
                raw = torch.from_numpy(raw.astype(np.complex64))
            stray |= (raw != 0).flatten(0, 1).any(0)
            out[:] = self._crop(raw)
        stray[self._measured] = False
        kspace[..., stray] = 0
        meta = dict(self._meta)
        if stray.any():
            meta["discarded_columns"] = int(stray.sum())
        mask = self._mask & (kspace != 0).flatten(1, 2).any(1)[:, None]
        reference = None
        if self._reference is not None:
            stored = guard.read(self._reference, keep, max_bytes=self.max_bytes)
            reference = _reference(stored, kspace)
            if reference is None:
                meta["reference"] = f"left out: reconstruction_rss {stored.shape[1:]} is not of this size and k-space"
        scan = Scan(kspace=kspace, mask=mask, reference=reference, spacing=self._spacing(), name=self.name, meta=meta)
        return self._part(scan, keep)

    def _crop(self, raw: Tensor) -> Tensor:
        """Return k-space of the middle of the readout axis, where the object is."""
        rows = self.matrix[0]
        if rows == self._readout:
            return raw
        start = (self._readout - rows) // 2
        return fft1c(ifft1c(raw, -2)[..., start : start + rows, :], -2)

    def _spacing(self) -> tuple[float, float, float] | None:
        """Return the size of a voxel: the encoded field of view over the encoded points, the slice's thickness."""
        header = self._header
        spacing = (
            header.encoded_fov[0] / self._readout,
            header.encoded_fov[1] / self.matrix[1],
            header.recon_fov[2] / header.recon[2],
        )
        return spacing if all(math.isfinite(length) and length > 0 for length in spacing) else None

    def _describe(self, acquisition: str | None) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "recon_matrix": list(self._header.recon[:2]),
            "padding": [self._measured.start, self._measured.stop],
        }
        if acquisition is not None:
            meta["acquisition"] = acquisition
        for name in ("max", "norm"):
            value = guard.attribute(self._file, name)
            if isinstance(value, np.number) and np.isfinite(value):
                meta[name] = float(value)
        return meta

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _reference(stored: Any, kspace: Tensor) -> Tensor | None:
    """Return the reference (slice, readout, phase) on the grid of k-space, or None when the stored one is of other."""
    with np.errstate(over="ignore"):
        stored = torch.from_numpy(stored.astype(np.float32))
    if stored.shape[1:] == kspace.shape[2:]:
        return stored
    rss = torch.stack([ifft2c(one).abs().square().sum(0).sqrt() for one in kspace])
    rows, columns = (min(a, b) for a, b in zip(stored.shape[1:], rss.shape[1:], strict=True))
    one, other = _centre(rss, rows, columns), _centre(stored, rows, columns)
    return rss if bool((one - other).norm() <= _AGREES * other.norm()) else None


def _centre(image: Tensor, rows: int, columns: int) -> Tensor:
    top, left = (image.shape[-2] - rows) // 2, (image.shape[-1] - columns) // 2
    return image[..., top : top + rows, left : left + columns]
