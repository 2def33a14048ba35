"""NumPy's .npy and .npz: k-space as (coil, readout, phase) or (slice, coil, readout, phase), complex.

An .npz names its arrays as the fields of a :class:`~upmri.core.scan.Scan`: ``kspace``, and if wanted ``mask``,
``maps``, ``reference``, ``noise``, ``spacing``, ``name``. An array in another order is read with the names of its axes
(:mod:`upmri.formats.ordered`); one that would have more coils than pixels is refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard, npy
from upmri.formats.axes import check_usual_order
from upmri.formats.source import Source

READS = "NumPy .npy or .npz with complex k-space"
_AXES = {"kspace": 4, "mask": 3, "maps": 4, "reference": 3}
_SINGLE = ("noise", "spacing", "name")


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it begins like .npy or, as .npz does, like a zip archive."""
    return head.startswith((npy.NPY, *npy.ZIP))


def open_source(path: Path, max_bytes: int) -> Source:
    """Open an .npy or .npz file."""
    return NpySource(path, max_bytes) if guard.head(path).startswith(npy.NPY) else NpzSource(path, max_bytes)


def _dimensions(header: npy.NpyHeader) -> tuple[int, int, int, int]:
    """Return the sizes (slice, coil, readout, phase) of an array that must be complex k-space."""
    if header.dtype.kind != "c" or len(header.shape) not in (3, 4) or 0 in header.shape:
        raise InputError(
            "expected a complex array (coil, readout, phase) or (slice, coil, readout, phase), "
            f"got {header.dtype} {header.shape}",
            field="kspace",
        )
    check_usual_order(header.shape)
    slices, coils, readout, phase = (1, *header.shape)[-4:]
    return slices, coils, readout, phase


class NpySource(Source):
    """An .npy file, mapped into memory for each read only, so that slices already read do not stay there."""

    format = "NumPy .npy"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._header = npy.npy_header("kspace", guard.head(path), path.stat().st_size)
        self.slices, self.coils, *_ = shape = _dimensions(self._header)
        self.matrix = shape[2:]
        self.slice_bytes = self._header.nbytes // self.slices

    def _read(self, keep: slice) -> Scan:
        header = self._header
        with guard.library("kspace"):
            kspace: Any = np.memmap(self.path, header.dtype, "r", header.offset, header.shape, header.order)
        kspace = np.array(kspace[None][keep] if kspace.ndim == 3 else kspace[keep])
        return Scan(kspace=kspace, name=self.name)


class NpzSource(Source):
    """An .npz file; of its arrays only the slices that are read are held in memory."""

    format = "NumPy .npz"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._archive = npy.open_npz(path, max_bytes)
        try:
            names = {name.removesuffix(".npy") for name in self._archive.namelist() if name.endswith(".npy")}
            if "kspace" not in names:
                raise InputError('expected an .npz archive with an array "kspace", there is none', field="kspace")
            known = names & {*_AXES, *_SINGLE}
            self._ignored = sorted(names - known)
            self._headers = {name: npy.npz_header(self._archive, name) for name in sorted(known)}
            self.slices, self.coils, *_ = shape = _dimensions(self._headers["kspace"])
            self.matrix = shape[2:]
            self.slice_bytes = sum(header.nbytes for header in self._headers.values()) // self.slices
            self._check_shapes()
        except BaseException:
            self.close()
            raise

    def _check_shapes(self) -> None:
        """Check that all arrays have as many slices as k-space, which a Scan of some slices could not find out."""
        for name, header in self._headers.items():
            if name in _SINGLE:
                if math.prod(header.shape) > 3 or header.nbytes > 4096:
                    raise InputError(
                        f"expected one value (three for spacing), got {header.dtype} {header.shape}", field=name
                    )
                continue
            slices = header.shape[0] if len(header.shape) == _AXES[name] else 1
            if slices != self.slices and not (name == "mask" and slices == 1):
                raise InputError(f"expected {self.slices} slices like kspace, got {header.shape}", field=name)

    def _read(self, keep: slice) -> Scan:
        fields: dict[str, Any] = {}
        for name, header in self._headers.items():
            sliced = len(header.shape) == _AXES.get(name) and header.shape[0] == self.slices
            fields[name] = npy.read_npz(self._archive, header, keep if sliced else None)
        fields |= {name: fields[name].tolist() for name in _SINGLE if name in fields}
        meta = {"ignored": self._ignored} if self._ignored else {}
        return self._part(Scan(**{"name": self.name, **fields}, meta=meta), keep)

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
