"""Arrays of k-space whose axes the user names: .npy, BART's .cfl, or the dataset ``kspace`` of an HDF5 file.

Of a .cfl, the axes with a name are those longer than 1, in BART's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import bart, guard, hdf5, npy
from upmri.formats.axes import NamedAxes, name_axes
from upmri.formats.positions import Positions
from upmri.formats.source import Source

Index = tuple[int | slice, ...]


class OrderedSource(Source):
    """An array with named axes: one slice is read at a time, of a volume one coil.

    Parameters
    ----------
    path, max_bytes
        As for :class:`~upmri.formats.source.Source`.
    text
        Names of the axes, as for :func:`upmri.formats.axes.name_axes`.
    """

    def __init__(self, path: Path, max_bytes: int, text: str) -> None:
        super().__init__(path, max_bytes)
        self._file: Any = None
        try:
            self.format, shape, self._fetch = self._open()
            self._axes: NamedAxes = name_axes(text, shape)
        except BaseException:
            self.close()
            raise
        axes = self._axes
        self.coils, self.matrix, self.slices = axes.coils, axes.matrix, axes.slices
        self.slice_bytes = 8 * self.coils * math.prod(self.matrix)
        wanted = ("readout", "phase", "partition") if axes.volume else ("readout", "phase")
        order = [name for name in axes.sizes if name in wanted]
        self._turn = [order.index(name) for name in wanted]
        self._positions = Positions(self._at, self.coils, axes.sizes["readout"], self.matrix, max_bytes)

    def _open(self) -> tuple[str, tuple[int, ...], Callable[[Index], NDArray[Any]]]:
        """Return the format, the shape, and a function that reads a part of the array."""
        head = guard.head(self.path)
        if head.startswith(npy.NPY):
            header = npy.npy_header("kspace", head, self.path.stat().st_size)
            _check_complex(header.dtype, header.shape)
            order, dtype, shape, offset, data = header.order, header.dtype, header.shape, header.offset, self.path
            kind = "NumPy .npy"
        elif bart.recognise(self.path, head):
            full, data = bart.open_pair(self.path)
            shape = tuple(length for length in full if length > 1)
            order, dtype, offset, kind = "F", np.dtype("<c8"), 0, "BART cfl"
        elif hdf5.is_hdf5(self.path):
            return self._open_hdf5()
        else:
            raise InputError(
                "expected .npy, .cfl or HDF5 with an array kspace; other files say which axis is which", field="axes"
            )

        def fetch(index: Index) -> NDArray[Any]:
            with guard.library("kspace"):
                mapped: Any = np.memmap(data, dtype, "r", offset, shape, order)
            return np.array(mapped[index])

        return kind, shape, fetch

    def _open_hdf5(self) -> tuple[str, tuple[int, ...], Callable[[Index], NDArray[Any]]]:
        self._file = hdf5.open_hdf5(self.path)
        stored = hdf5.find_array(self._file, "kspace")
        if stored is None:
            raise InputError("expected an array of this name, there is none", field="kspace")
        _check_complex(stored.dtype, stored.shape)
        whole = [slice(0, length, 1) for length in stored.shape]

        def fetch(index: Index) -> NDArray[Any]:
            part = (full if isinstance(at, slice) else at for at, full in zip(index, whole, strict=True))
            return stored.read(*part, max_bytes=self.max_bytes)

        return "HDF5 array", stored.shape, fetch

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        readout = self._axes.sizes["readout"]
        kspace = torch.empty(len(wanted), self.coils, *self.matrix, dtype=torch.complex64)
        for out, index in zip(kspace, wanted, strict=True):
            if self._axes.volume:
                frame, position = divmod(index, readout)
                out[:] = self._positions(frame, position, keep.step if len(wanted) > 1 else 1)
            else:
                for coil in range(self.coils):
                    out[coil] = torch.from_numpy(self._at(index, coil))
        axes = {name: length for name, length in self._axes.along_slices.items() if length > 1}
        return Scan(kspace=kspace, name=self.name, meta={"axes": axes} if axes else {})

    def _at(self, frame: int, coil: int) -> NDArray[np.complex64]:
        """Return (readout, phase[, partition]) of one coil and frame."""
        frames = self._axes.frames
        numbers = {"coil": coil}
        for name, length in reversed(frames.items()):  # the last is the fastest
            frame, numbers[name] = divmod(frame, length)
        index = tuple(numbers.get(name, slice(None)) for name in self._axes.sizes)
        return np.ascontiguousarray(guard.single(self._fetch(index)).transpose(self._turn))

    def close(self) -> None:
        """Close an HDF5 file."""
        if self._file is not None:
            self._file.close()


def _check_complex(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if dtype.kind != "c":
        raise InputError(f"expected a complex array, got {dtype} {shape}", field="kspace")
