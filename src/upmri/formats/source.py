"""A scan on disk, opened but not yet read, and the slices of it that are asked for."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from upmri.core import geometry
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard

SliceSelection = int | slice | str | None
"""Which slices to read: all (None), one (3), a range (``slice(3, 7)``), or either as text ("3", "3:7")."""


@dataclass(frozen=True)
class Acquisitions:
    """All readouts of an ISMRMRD file, to be sent on.

    ``heads`` are in the layout of ``ismrmrd.AcquisitionHeader``; ``samples`` gives those of one readout after another,
    complex64 as (channel, sample).
    """

    xml: bytes
    heads: NDArray[Any]
    samples: Iterator[bytes]


class Source(ABC):
    """A file whose headers are known and whose slices are read when asked for.

    A format derives a class from it, which fills in what the file declares and reads a range of slices. Sizes are
    checked here, before any format allocates memory.

    Attributes
    ----------
    path, name
        The file, and its name without folder and suffix.
    slices, coils, matrix
        Number of slices, number of coils, and the size (readout, phase).
    format
        Name of the format, as "fastMRI HDF5".
    slice_bytes
        Bytes of memory for one slice, with its part of every array.
    max_bytes
        Most bytes of memory for one ``read``.
    """

    format: str
    slices: int
    coils: int
    matrix: tuple[int, int]
    slice_bytes: int

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.name = path.stem
        self.max_bytes = max_bytes

    def indices(self, slices: SliceSelection = None) -> range:
        """Return the numbers of these slices, to read them one by one."""
        with guard.naming(self.path):
            return select_slices(slices, self.slices)

    def read(self, slices: SliceSelection = None) -> Scan:
        """Read these slices, and only these, from disk."""
        wanted = self.indices(slices)
        with guard.naming(self.path):
            needed = len(wanted) * self.slice_bytes
            guard.check_bytes(f"{len(wanted)} of {self.slices} slices", needed, self.max_bytes)
            return self._read(slice(wanted.start, wanted.stop, wanted.step))

    def each(self, slices: SliceSelection = None) -> Iterator[Scan]:
        """Read these slices one by one; the spacing of each is that between them."""
        wanted = self.indices(slices)
        for index in wanted:
            yield self.read_one(index, wanted)

    def read_one(self, index: int, among: range) -> Scan:
        """Read one slice of several; its spacing is that between them."""
        return _cut(self.read(index), 0, self._step(among))

    def acquisitions(self) -> Acquisitions | None:
        """Return the readouts as they are stored, to be sent on; None where the format does not store ISMRMRD's."""
        return None

    @abstractmethod
    def _read(self, keep: slice) -> Scan:
        """Read the slices start:stop:step, 0 ≤ start < stop ≤ ``slices``, step ≥ 1."""

    def _step(self, wanted: range) -> int:
        """Return the distance of these slices, in slices; 0 where they are no stack in space."""
        return wanted.step if len(wanted) > 1 else 1

    def _part(self, scan: Scan, keep: slice) -> Scan:
        """Return a scan of these slices, read with the geometry of all slices, with the geometry of its own."""
        return _cut(scan, keep.start, self._step(range(keep.start, keep.stop, keep.step)))

    def close(self) -> None:  # noqa: B027, most formats hold nothing open
        """Close the file, where a format holds it open between reads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Reader(Protocol):
    """What a format needs to be read: a module, or an object, with these three names."""

    READS: str
    """What it reads, as in "expected NumPy .npy or .npz with complex k-space"."""

    def recognise(self, path: Path, head: bytes) -> bool:
        """Return whether a file is of this format, by its first 64 KiB, ``head``, or by what else is inside."""

    def open_source(self, path: Path, max_bytes: int) -> Source:
        """Open a file that was recognised."""


def select_slices(slices: SliceSelection, count: int) -> range:
    """Return the numbers of the selected slices out of ``count``: at least one, in ascending order.

    Parameters
    ----------
    slices
        All of them (None), one (3, -1), a range (``slice(3, 7)``), or either as text ("3", "3:7", "-4:", "::2").
    """
    try:
        wanted = _parse(slices) if isinstance(slices, str) else slices
        if wanted is None:
            return range(count)
        if not isinstance(wanted, slice):
            start = range(count)[operator.index(wanted)]
            return range(start, start + 1)
        chosen = range(count)[wanted]
        # Python would silently clip these; slice 40 of 30 is more likely a mistake. ":4" means at most four slices.
        ends = (wanted.start, None if wanted.start is None and (wanted.stop or 0) > 0 else wanted.stop)
        inside = all(-count <= operator.index(end) <= count for end in ends if end is not None)
        if inside and chosen.step > 0 and chosen:
            return chosen
    except (TypeError, ValueError, IndexError):
        pass
    raise InputError(
        f"expected some of 0 to {count - 1} (there {'is 1 slice' if count == 1 else f'are {count} slices'}), "
        f'such as 0, -1 or "0:{count}", got {slices!r}',
        field="slices",
    )


def _cut(scan: Scan, start: int, step: int) -> Scan:
    about = geometry.cut(scan.spacing, scan.meta, start, step)
    same = (about["spacing"], about["meta"]) == (scan.spacing, scan.meta)
    return scan if same else replace(scan, **about)


def _parse(text: str) -> int | slice:
    if ":" not in text:
        return int(text)
    return slice(*(int(part) if part.strip() else None for part in text.split(":")))
