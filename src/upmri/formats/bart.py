"""BART's k-space: .cfl, complex64 in column-major order without any mark, beside .hdr, a text with its dimensions.

Either name can be given. BART's dimensions become

==========================  ============================================================================================
0 READ, 1 PHS1              (readout, phase), when 2 PHS2 is 1
1 PHS1, 2 PHS2              (readout, phase), when 0 READ is 1: two phase encodings with the readout already transformed
0 READ, 1 PHS1, 2 PHS2      all longer than 1 is 3-D: the readout is transformed back, and each of its positions is a
                            slice of (PHS1, PHS2)
3 COIL                      coils
14 AVG                      averaged, each point over those that are not 0
15 BATCH, 12 LEVEL,         along the slice axis, the last of them fastest; ``meta["axes"]`` gives their lengths,
11 TIME2, 10 TIME, 5 TE,    slowest first
13 SLICE
==========================  ============================================================================================

The mask is found from the zeros. A file does not say whether it holds an image or k-space, or Cartesian sampling or a
trajectory: it is read as Cartesian k-space.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard
from upmri.formats.positions import Positions
from upmri.formats.source import Source

READS = "BART .cfl or .hdr with k-space"
_MARK = b"# Dimensions"
_DIMENSIONS = 16
_COIL, _AVERAGE = 3, 14
_FRAMES = {"batch": 15, "level": 12, "time2": 11, "time": 10, "echo": 5, "slice": 13}  # slowest first


def recognise(path: Path, head: bytes) -> bool:
    """Return whether it is such a header, or has the suffix of the data, which has no mark of its own."""
    return head.startswith(_MARK) or path.suffix == ".cfl"


def dimensions(header: bytes) -> tuple[int, ...]:
    """Parse a header: the sixteen dimensions, on the line after the one that announces them."""
    lines = header.split(b"\n", 2)
    words = lines[1].split() if lines[0].strip() == _MARK and len(lines) > 1 else []
    if not 1 <= len(words) <= _DIMENSIONS or not all(word.isdigit() and len(word) < 20 for word in words):
        raise InputError(f'expected "{_MARK.decode()}" and a line of at most {_DIMENSIONS} of them')
    found = tuple(map(int, words)) + (1,) * (_DIMENSIONS - len(words))
    if 0 in found:
        raise InputError(f"expected dimensions of at least 1, got {_text(found)}")
    return found


def open_pair(path: Path) -> tuple[tuple[int, ...], Path]:
    """Return the sixteen dimensions and the file with the data, whose length is checked; either name can be given."""
    header, data = path.with_suffix(".hdr"), path.with_suffix(".cfl")
    for needed in (header, data):
        if not needed.is_file():
            raise InputError("expected this file beside it, there is none", field=needed.name)
    try:
        shape = dimensions(guard.head(header))
    except InputError as error:
        raise error.within(field=header.name) from error
    size, declared = data.stat().st_size, 8 * math.prod(shape)
    if size != declared:
        field = None if data == path else data.name  # the file that was given is named anyway
        raise InputError(f"expected {declared} bytes for {_text(shape)}, there are {size}", field=field)
    return shape, data


class BartSource(Source):
    """BART's pair of files, mapped into memory for each read only."""

    format = "BART cfl"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._shape, self._data = open_pair(path)
        shape = self._shape
        known = {0, 1, 2, _COIL, _AVERAGE, *_FRAMES.values()}
        if any(length > 1 for dimension, length in enumerate(shape) if dimension not in known):
            raise InputError(
                f"expected k-space, which has no maps, coefficients or shifts, got {_text(shape)}",
                field=path.with_suffix(".hdr").name,
            )
        self.coils = shape[_COIL]
        self._axes = {name: shape[dimension] for name, dimension in _FRAMES.items()}
        self._volume = min(shape[:3]) > 1
        self.matrix = (shape[0], shape[1]) if shape[2] == 1 else (shape[1], shape[2])
        self.slices = math.prod(self._axes.values()) * (shape[0] if self._volume else 1)
        self.slice_bytes = 8 * self.coils * self.matrix[0] * self.matrix[1]
        self._positions = Positions(self._at, self.coils, shape[0], self.matrix, max_bytes)

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = torch.empty(len(wanted), self.coils, *self.matrix, dtype=torch.complex64)
        for out, index in zip(kspace, wanted, strict=True):
            frame, position = divmod(index, self._shape[0]) if self._volume else (index, None)
            if position is None:
                for number, coil in enumerate(out):
                    coil[:] = torch.from_numpy(self._at(frame, number).reshape(self.matrix))
            else:
                out[:] = self._positions(frame, position, keep.step if len(wanted) > 1 else 1)
        axes = {name: length for name, length in self._axes.items() if length > 1}
        axes |= {"readout": self._shape[0]} if self._volume else {}
        averages = self._shape[_AVERAGE]
        meta = ({"axes": axes} if axes else {}) | ({"averages": averages} if averages > 1 else {})
        return Scan(kspace=kspace, name=self.name, meta=meta)

    def _at(self, frame: int, coil: int) -> NDArray[np.complex64]:
        """Return (READ, PHS1, PHS2) of one coil and frame, averages averaged."""
        with guard.library():
            mapped: Any = np.memmap(self._data, "<c8", "r", 0, self._shape, "F")
        at: list[int | slice] = [0] * _DIMENSIONS
        at[:3], at[_COIL], at[_AVERAGE] = [slice(None)] * 3, coil, slice(None)
        for dimension, number in zip(
            _FRAMES.values(), np.unravel_index(frame, tuple(self._axes.values())), strict=True
        ):
            at[dimension] = int(number)
        part: NDArray[np.complex64] = np.array(mapped[tuple(at)]).astype(np.complex64, copy=False)
        return part[..., 0] if part.shape[-1] == 1 else part.sum(-1) / np.maximum(1, (part != 0).sum(-1))


open_source = BartSource


def _text(shape: tuple[int, ...]) -> str:
    return " ".join(map(str, shape))
