"""SKM-TEA's raw-data track: knees in 3-D with two echoes (qDESS), HDF5.

============ ================================= =====================================================================
``kspace``   (x, ky, kz, echo, coil), complex  transformed along the readout already; zeros around what was measured
``maps``     (x, ky, kz, coil, 1), complex     coil maps, by JSENSE on 24 × 24 points of each x
``target``   (x, ky, kz, echo, 1), complex     image by SENSE: the reference
``masks``    ``poisson_4.0x``, …               sampling masks of the benchmark, test files only
============ ================================= =====================================================================

Each position x is a slice of a Scan with ky as its readout axis and kz as its phase axis, and the mask is 2-D where
corners of (ky, kz) were not measured. Echoes lie along the slice axis, slowest: number = echo · x-positions + x;
``meta["axes"]`` has both lengths. K-space is as the file has it: complete, as half of its lines were filled in by the
scanner (GE's ARC) before it was published, so that its noise is not white. ``meta["masks"]`` names the masks that are
there; they are not applied. The size of voxels is not in the file.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard, hdf5

READS = "SKM-TEA's raw-data HDF5"
_NAMES = ("kspace", "maps", "target")
_MASKS = tuple(f"poisson_{rate}.0x" for rate in (2, 4, 6, 8, 10, 12, 16, 20))


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with k-space, maps and a target in its root."""
    return hdf5.matches(path, lambda file: all(hdf5.has_link(file, name) for name in _NAMES))


class SkmTeaSource(hdf5.Hdf5Source):
    """An SKM-TEA file; positions and echoes are read one by one."""

    format = "SKM-TEA HDF5 (3-D, hybrid space)"

    def _open(self) -> None:
        self._kspace = self._find("kspace", "(x, ky, kz, echo, coil)")
        self._positions, rows, columns, self._echoes, self.coils = self._kspace.shape
        self.matrix = (rows, columns)
        self.slices = self._echoes * self._positions
        grid = (self._positions, rows, columns)
        self._maps = self._find("maps", "(x, ky, kz, coil, 1) like kspace", (*grid, self.coils, 1))
        self._target = self._find("target", "(x, ky, kz, echo, 1) like kspace", (*grid, self._echoes, 1))
        pixel = sum(part.dtype.itemsize for part in (self._kspace, self._maps)) * self.coils
        self.slice_bytes = rows * columns * (pixel + self._target.dtype.itemsize)
        masks = [name for name in _MASKS if hdf5.find_array(self._file, f"masks/{name}") is not None]
        self._meta: dict[str, Any] = {"axes": {"echo": self._echoes, "slice": self._positions}}
        self._meta |= {"masks": masks} if masks else {}

    def _find(self, name: str, layout: str, shape: tuple[int, ...] | None = None) -> hdf5.StoredArray:
        found = hdf5.find_array(self._file, name)
        right = found is not None and found.dtype.kind == "c" and len(found.shape) == 5 and 0 not in found.shape
        if found is None or not right or shape not in (None, found.shape):
            layout += "" if shape is None else f", {shape}"
            raise InputError(f"expected complex {layout}, got {found or 'none'}", field=name)
        return found

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = np.empty((len(wanted), self.coils, *self.matrix), np.complex64)
        maps = np.empty_like(kspace)
        reference = np.empty((len(wanted), *self.matrix), np.complex64)
        done = 0
        for echo, numbers in groupby(wanted, key=lambda number: number // self._positions):
            places = [number % self._positions for number in numbers]
            here = slice(places[0], places[-1] + 1, keep.step)
            there = slice(done, done + len(places))
            _fill(kspace[there], self._part_of(self._kspace, here, echo))
            _fill(maps[there], self._part_of(self._maps, here)[..., 0])
            _fill(reference[there, None], self._part_of(self._target, here, echo))
            done += len(places)
        return Scan(
            kspace=torch.from_numpy(kspace),
            maps=torch.from_numpy(maps),
            reference=torch.from_numpy(reference),
            name=self.name,
            meta=dict(self._meta),
        )

    def _part_of(self, stored: hdf5.StoredArray, places: slice, *echo: int) -> NDArray[Any]:
        rows, columns = (slice(0, length, 1) for length in self.matrix)
        return stored.read(places, rows, columns, *echo, max_bytes=self.max_bytes)


open_source = SkmTeaSource


def _fill(out: NDArray[Any], stored: NDArray[Any]) -> None:
    """Copy (slice, ky, kz, coil) to complex64 (slice, coil, ky, kz)."""
    out[:] = np.moveaxis(guard.single(stored), -1, 1)
