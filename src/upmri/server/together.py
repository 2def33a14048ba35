"""Frames of a stream that a method over time reconstructs together: kept, by place, until the place is complete.

The place of a frame is its slice: repetitions, cardiac phases, sets and contrasts of a slice are frames of one series,
as in files (:func:`upmri.inference.whole_series.frames_of_places`). A place is complete when it has all frames that
the XML names, if that names several, or at the end of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from upmri.server.assemble import Assembler, Frame, Rows
from upmri.server.limits import Limits

_ROW = 64  # bytes that a worker needs for each noise readout in each frame


@dataclass
class Place:
    """Frames of one place.

    ``made`` is the number of images that were made of them so far, ``nbytes`` the size of their readouts.
    """

    frames: list[Frame] = field(default_factory=list)
    made: int = 0
    nbytes: int = 0
    counted: set[int] = field(default_factory=set)  # identities of readouts: frames may share those for calibration


Work = Frame | Place  # what a worker gets at once


class KeptFrames:
    """Keeps the complete frames of one stream.

    Parameters
    ----------
    lines
        Sorting of the readouts; its ``held`` counts the frames that are kept, too.
    limits
        Limits of the server.
    """

    def __init__(self, lines: Assembler, limits: Limits) -> None:
        self._lines, self._limits = lines, limits
        self._places: dict[int, Place] = {}
        self._done: set[int] = set()
        self._count = 0

    def add(self, frame: Frame) -> Place | None:
        """Keep a frame, and return its place if that is complete; frames that come later are left out."""
        number, image = frame.key[-1], self._lines.image
        if image is None or number in self._done:
            self._lines.late += len(frame.rows.bodies)
            return None
        place = self._places.setdefault(number, Place())
        place.frames.append(frame)
        frame.lines.clear()  # only a frame that is not complete needs it
        self._count += 1
        self._limits.check("frames", self._count, "frames kept for a method over time")
        needed = len(place.frames) * (image.slice_bytes + _ROW * len(self._lines.noise.bodies))
        self._limits.check("held_bytes", needed, f"bytes of {len(place.frames)} frames of one place, all coils")
        new = [rows for rows in parts_of(frame) if id(rows) not in place.counted]
        place.counted.update(map(id, new))
        place.nbytes += (size := sum(rows.nbytes for rows in new))
        self._lines.keep(size)
        return self._take(number) if len(place.frames) == image.frames > 1 else None

    def rest(self) -> Iterator[Place]:
        """Yield the places that are left, at the end of the stream, in the order of their slices."""
        for number in sorted(self._places):
            yield self._take(number)

    def _take(self, number: int) -> Place:
        """Remove a place; its frames are in the order of time, which is that of their counters."""
        place = self._places.pop(number)
        place.frames.sort(key=lambda frame: frame.key)
        self._done.add(number)
        self._count -= len(place.frames)
        self._lines.keep(-place.nbytes)
        return place


def parts_of(frame: Frame) -> tuple[Rows, Rows, Rows]:
    """Return the readouts of a frame in the order in which a worker gets them."""
    return frame.calibration, frame.navigators, frame.rows


def distinct_parts(frames: Sequence[Frame]) -> tuple[list[Rows], list[list[int]]]:
    """Return the readouts of some frames, those that frames share once, and the numbers of those of each frame."""
    found = {id(rows): rows for frame in frames for rows in parts_of(frame)}
    numbers = {identity: number for number, identity in enumerate(found)}
    return list(found.values()), [[numbers[id(rows)] for rows in parts_of(frame)] for frame in frames]
