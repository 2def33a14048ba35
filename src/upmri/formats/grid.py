"""The grid of k-space, and where the readouts of a scanner lie on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError

AXES = ("repetition", "phase", "set", "contrast", "slice")  # of frames, slowest first
LONGEST = 2**16  # of any axis
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The grid of k-space: its sizes, the size of the readout without oversampling, and the size of a voxel in mm."""

    samples: int
    readout: int
    lines: int
    partitions: int = 1
    spacing: tuple[float, float, float] | None = None  # (readout, line, partition or slice)

    def __post_init__(self) -> None:
        for name in ("samples", "lines", "partitions"):
            if not 1 <= getattr(self, name) < LONGEST:
                raise InputError(f"expected 1 to {LONGEST - 1} of them, got {getattr(self, name)}", field=name)
        if not 1 <= self.readout <= self.samples:
            raise InputError(
                f"expected 1 to {self.samples} samples without oversampling, got {self.readout}", field="readout"
            )


@dataclass(frozen=True)
class Table:
    """What is known of every readout: columns with one entry per readout.

    ``line`` and ``partition`` are places on the grid, ``counters`` has a column for each of AXES, ``centre`` is the
    sample at the centre of k-space; ``skip`` are samples to leave out at the (begin, end).
    """

    line: Ints
    partition: Ints
    counters: Ints
    samples: Ints
    centre: Ints
    skip: Ints
    reverse: NDArray[np.bool_]
    calibration: NDArray[np.bool_]

    def places(self, grid: Grid) -> Ints:
        """Return (begin, first, last) of each readout on the grid; its samples first to last - 1 are used."""
        centre = np.where(self.reverse, self.samples - self.centre, self.centre)
        # A readout as long as the grid fills it, whatever its centre; not every program writes the centre.
        begin = np.where(self.samples == grid.samples, 0, grid.samples // 2 - centre)
        skip = np.where(self.reverse[:, None], self.skip[:, ::-1], self.skip)
        first, last = begin + skip[:, 0], begin + self.samples - skip[:, 1]
        wrong = (first < 0) | (last > grid.samples) | (first >= last)
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                f"a readout of {self.samples[at]} samples with its centre at {self.centre[at]} does not fit "
                f"a grid of {grid.samples}",
                field="data",
            )
        return np.stack([begin, first, last], 1)


def place(what: str, counter: Ints, centre: int | None, size: int) -> Ints:
    """Return places on an axis of the grid for counters of which ``centre`` belongs to its centre.

    Without a centre, counters are places. Programs that do not know the centre write 0, so that 0 counts as none if
    counters fit no other way.
    """
    places = counter if centre is None else counter - centre + size // 2
    if centre == 0 and places.max() >= size:
        places = counter
    if places.min() < 0 or places.max() >= size:
        raise InputError(
            f"{counter.min()} to {counter.max()} with centre {centre} do not fit a grid of {size}", field=what
        )
    return places


def ranked(slices: Ints, positions: NDArray[Any] | None) -> Ints:
    """Return slice numbers in the order in which slices lie in space, if they do; else as they are."""
    if positions is None or not np.isfinite(positions).all():
        return slices
    numbers, first = np.unique(slices, return_index=True)
    places = positions[first].astype(np.float64)
    along = places[:, np.ptp(places, axis=0).argmax()]
    if len(np.unique(along)) < len(numbers):
        return slices
    rank = np.empty(len(numbers), np.int64)
    rank[along.argsort()] = numbers
    return rank[np.searchsorted(numbers, slices)]
