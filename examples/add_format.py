"""
Add a format
============

A reader for files of an invented kind, from their first bytes to ``upmri recon scan.ksp``.
"""

# %%
# The files begin with a line that names the format and one with their size; complex64 numbers follow, little-endian,
# slice by slice. A reader is a module with three names: ``READS``, ``recognise`` and ``open_source``.
from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import upmri
from upmri.core.errors import InputError
from upmri.evaluation import comparison
from upmri.formats import Source, guard

READS = "a .ksp file"
MAGIC = b"KSPACE 1\n"


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell by the first bytes; the name of a file says nothing."""
    return head.startswith(MAGIC)


def open_source(path: Path, max_bytes: int) -> Source:
    """Open a file that was recognised."""
    return KspSource(path, max_bytes)


# %%
# ``open_source`` gives a ``Source``: it reads the header when it is made, and slices when they are asked for. What a
# header declares is not believed until it was held against the file. ``Source.read`` has checked the memory before it
# calls ``_read``.
class KspSource(Source):
    """An open .ksp file."""

    format = "KSP"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        sizes = guard.head(path)[len(MAGIC) :].split(b"\n", 1)[0]
        numbers = [int(word) for word in sizes[:80].split() if word.isdigit()]
        if len(numbers) != 4 or 0 in numbers:
            raise InputError(f"second line: expected slices, coils, readout and phase, got {sizes[:40]!r}")
        self.slices, self.coils, *_ = self._shape = tuple(numbers)
        self.matrix = (numbers[2], numbers[3])
        self.slice_bytes = 8 * math.prod(numbers[1:])
        self._offset = len(MAGIC) + len(sizes) + 1
        there = path.stat().st_size - self._offset
        if there != self.slices * self.slice_bytes:
            raise InputError(f"expected {self.slices * self.slice_bytes} bytes after the header, there are {there}")

    def _read(self, keep: slice) -> upmri.Scan:
        whole = np.memmap(self.path, "<c8", "r", self._offset, self._shape)
        return upmri.Scan(kspace=np.array(whole[keep]), name=self.name)

    def close(self) -> None:
        """Nothing is held between reads."""


# %%
# A file to try it with.
made = upmri.simulate(upmri.demo.brain(), coils=4, acceleration=2)
path = Path("scan.ksp")
path.write_bytes(MAGIC + b"3 4 %d %d\n" % made.matrix + made.kspace.numpy().astype("<c8").tobytes())

with open_source(path, max_bytes=2**30) as source:
    print(source.format, source.slices, source.coils, source.matrix)
    scan = source.read(1)
figure = comparison(made.reference[1], {"sense": upmri.reconstruct(scan, "sense").image})

# %%
# To have ``upmri.load``, ``info`` and ``recon`` know it, make it ``src/upmri/formats/ksp.py``, import it in
# ``src/upmri/formats/__init__.py`` and add it to ``_READERS`` there. Its test goes into ``tests/formats/``: a file
# that is right comes back number for number; one that is cut short, empty or boastful is an ``InputError`` of one
# line.
