"""
Add a format
============

A reader for files of an invented kind, from their first bytes to ``upmri.load("scan.ksp")``.
"""

# %%
# The files begin with a line that names the format and one with their size; complex64 numbers follow, little-endian,
# slice by slice. A reader is a module or an object with three names: ``READS``, ``recognise`` and ``open_source``.
from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import upmri
from upmri.evaluation import comparison
from upmri.formats import Source

MAGIC = b"KSPACE 1\n"


class KspReader:
    """The three names that a reader needs."""

    READS = "a .ksp file"

    @staticmethod
    def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG004
        """Return whether the first bytes are those of the format; the name of a file does not matter."""
        return head.startswith(MAGIC)

    @staticmethod
    def open_source(path: Path, max_bytes: int) -> Source:
        """Open a file that was recognised."""
        return KspSource(path, max_bytes)


# %%
# ``open_source`` returns a ``Source``: it reads the header when it is made, and slices later, when they are wanted.
# What a header declares is compared with the size of the file first. ``Source.read`` has checked the memory before it
# calls ``_read``. An ``InputError`` names the part of the file that is wrong; UPMRI adds the name of the file.
class KspSource(Source):
    """An open .ksp file."""

    format = "KSP"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        with path.open("rb") as file:
            sizes = file.read(100)[len(MAGIC) :].split(b"\n", 1)[0]
        numbers = [int(word) for word in sizes[:80].split() if word.isdigit()]
        if len(numbers) != 4 or 0 in numbers:
            raise upmri.InputError(
                f"expected slices, coils, readout and phase, got {sizes[:40]!r}", field="second line"
            )
        self.slices, self.coils, *_ = self._shape = tuple(numbers)
        self.matrix = (numbers[2], numbers[3])
        self.slice_bytes = 8 * math.prod(numbers[1:])
        self._offset = len(MAGIC) + len(sizes) + 1
        there, declared = path.stat().st_size - self._offset, self.slices * self.slice_bytes
        if there != declared:
            raise upmri.InputError(f"expected {declared} bytes after the header, there are {there}")

    def _read(self, keep: slice) -> upmri.Scan:
        whole = np.memmap(self.path, "<c8", "r", self._offset, self._shape)
        return upmri.Scan(kspace=np.array(whole[keep]), name=self.name)


# %%
# ``register`` makes it known, and with it ``upmri.load``. Here is a file to try it with.
upmri.formats.register(KspReader)
made = upmri.simulate(upmri.demo.brain(), coils=4, acceleration=2)
path = Path("scan.ksp")
path.write_bytes(MAGIC + b"3 4 %d %d\n" % made.matrix + made.kspace.numpy().astype("<c8").tobytes())

with upmri.formats.open_source(path) as source:
    print(source.format, source.slices, source.coils, source.matrix)
scan = upmri.load(path, slices=1)
figure = comparison(made.reference[1], {"sense": upmri.reconstruct(scan, "sense").image})

# %%
# A program that calls ``register`` knows the format from then on. So that the command line knows it as well
# (``upmri info scan.ksp``, ``upmri recon scan.ksp``), put the reader into a package of your own that names it in its
# ``pyproject.toml``:
#
# .. code-block:: toml
#
#     [project.entry-points."upmri.formats"]
#     ksp = "my_package.ksp:KspReader"
#
# Its test: a file that is right comes back number for number; one that is cut short, empty or declares more than it
# holds is an ``InputError`` of one line.
