"""From readouts, in the order of their arrival, to frames that are complete.

A frame is one slice of one repetition, cardiac phase, set and contrast. It is complete when a readout says so (the last
in its slice, in its repetition or in the measurement), when every line that the XML names has been read out, or at the
end of the stream. What readouts become is told in :mod:`upmri.formats.readouts`; here they are only sorted.

Of several encodings the image is that of the first readout that is neither noise nor calibration. Lines for calibration
belong to their frame, unless they are of another acquisition: then those that come first, before the slice's first
frame is complete, serve all frames of the slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from upmri.core.errors import InputError
from upmri.formats.acquisitions import (
    CALIBRATION,
    CALIBRATION_AND_IMAGING,
    NOISE,
    OTHER,
    PHASE_CORRECTION,
    REVERSE,
    check_trajectory,
    encoded_grid,
    parse_header,
    value_of,
)
from upmri.formats.grid import AXES
from upmri.server.limits import Limits, RefusedError

_LAST_IN_SLICE, _LAST_IN_REPETITION, _LAST_IN_MEASUREMENT = 8, 14, 25
_NOISE_BYTES = 2**26  # more tells no more
_OVERSAMPLING = 8  # the most there is
_FRAME = 2048  # bytes that an open frame takes beside its readouts

Key = tuple[int, ...]


@dataclass
class Rows:
    """Readouts: their headers one after the other, and the samples of each."""

    heads: bytearray = field(default_factory=bytearray)
    bodies: list[bytes] = field(default_factory=list)
    nbytes: int = 0

    def add(self, head: bytes, body: bytes) -> int:
        """Append one and return the bytes it takes."""
        self.heads += head
        self.bodies.append(body)
        self.nbytes += (taken := len(head) + len(body))
        return taken

    def extend(self, other: Rows) -> None:
        """Append others."""
        self.heads += other.heads
        self.bodies += other.bodies
        self.nbytes += other.nbytes


@dataclass
class Frame:
    """The readouts of a frame, with those of its calibration; ``key`` has its number on each of AXES."""

    key: Key
    space: int
    rows: Rows = field(default_factory=Rows)
    calibration: Rows = field(default_factory=Rows)
    lines: set[tuple[int, int, int]] = field(default_factory=set)
    lengths: tuple[int, int] = (2**16, 0)  # the shortest for calibration, the longest of the others


class Assembler:
    """Sorts the readouts of one stream.

    ``noise`` are the noise readouts, ``held`` the bytes that wait here, ``late`` how many readouts came too late to be
    used: after their frame was complete, or noise after imaging had begun.
    """

    def __init__(self, xml: bytes, limits: Limits) -> None:
        self.xml, self._limits = xml, limits
        try:
            self._encodings = parse_header("header", xml).findall("encoding")
        except (UnicodeDecodeError, RecursionError) as error:
            raise InputError("header: expected an ISMRMRD header in XML, as UTF-8") from error
        if not self._encodings:
            raise InputError("header: expected an encoding in the XML, there is none")
        self.noise = Rows()
        self.held = self.late = self.readouts = 0
        self._open: dict[tuple[int, Key], Frame] = {}
        self._done: set[Key] = set()
        self._seen: set[int] = set()  # REVERSE and PHASE_CORRECTION: together they mean echo-planar
        self._coils: int | None = None
        self._image: _Image | None = None
        self._apart: dict[int, Rows] | None = None  # calibration of another acquisition, by slice
        self._settled = False  # whether it is
        self._calibrated: set[int] = set()  # slices of which a frame is done

    def add(self, head: Any, body: bytes) -> list[Frame]:
        """Take a readout and return the frames that it completes."""
        self.readouts += 1
        self._limits.check("readouts", self.readouts, "readouts of the stream")

        def flagged(number: int) -> bool:
            return bool(head.flags >> (number - 1) & 1)

        if flagged(NOISE):
            if self._image is not None:
                self.late += 1
            elif self.noise.nbytes < _NOISE_BYTES:
                self._hold(self.noise.add(bytes(head), body))
            return []
        self._seen |= {number for number in (REVERSE, PHASE_CORRECTION) if flagged(number)}
        calibration = flagged(CALIBRATION) and not flagged(CALIBRATION_AND_IMAGING)
        key = tuple(getattr(head.idx, name) for name in AXES)
        if not any(flagged(number) for number in OTHER):
            self._put(head, body, key, calibration)
        if self._image is None:
            return []
        # An end that is told with a readout that is left out is an end all the same.
        if flagged(_LAST_IN_MEASUREMENT):
            return [self._take(one) for one in list(self._open.values()) if one.rows.bodies]
        if flagged(_LAST_IN_REPETITION):
            over = [one for one in self._open.values() if one.rows.bodies and one.key[0] == key[0]]
            return [self._take(one) for one in over]
        frame = self._open.get((self._image.space, key))
        if frame is None or calibration:
            return []
        last = flagged(_LAST_IN_SLICE) and not self._image.volume and head.idx.average >= self._image.averages - 1
        return [self._take(frame)] if last or len(frame.lines) >= self._image.lines else []

    def rest(self) -> Iterator[Frame]:
        """Return what is not complete but over."""
        if self._image is None:
            raise RefusedError("data", "the stream ended without a readout of an image; expected some")
        for frame in list(self._open.values()):
            yield self._take(frame)

    # --- where a readout goes -----------------------------------------------------------------------------------------

    def _put(self, head: Any, body: bytes, key: Key, calibration: bool) -> None:
        self._coils = self._coils or head.active_channels
        if head.active_channels != self._coils:
            raise RefusedError("data", f"expected readouts of {self._coils} coils, got one of {head.active_channels}")
        if self._image is None and not calibration:
            self._begin(head.encoding_space_ref)
        if self._image is not None:
            if head.encoding_space_ref != self._image.space:
                return  # another encoding is not the image
            if head.number_of_samples > self._image.samples:
                raise RefusedError(
                    "data", f"a readout of {head.number_of_samples} samples, {self._image.samples} expected"
                )
            check_trajectory(self._image.encoding, echo_planar=len(self._seen) == 2)
        if calibration and self._apart is not None:
            if key[-1] not in self._calibrated:
                self._hold(self._apart.setdefault(key[-1], Rows()).add(bytes(head), body))
            return
        if key in self._done:
            self.late += 1
            return
        frame = self._open.get((head.encoding_space_ref, key))
        if frame is None:
            frame = self._open[head.encoding_space_ref, key] = Frame(key, head.encoding_space_ref)
            self._hold(_FRAME)
            self._limits.check("frames", len(self._open), "slices, repetitions, … begun and not complete")
        self._hold((frame.calibration if calibration else frame.rows).add(bytes(head), body))
        used, (shortest, longest) = head.number_of_samples - head.discard_pre - head.discard_post, frame.lengths
        if calibration:
            frame.lengths = (min(shortest, used), longest)
        else:
            frame.lengths = (shortest, max(longest, used))
            at = head.idx
            frame.lines.add((at.kspace_encode_step_1, at.kspace_encode_step_2, at.average))

    def _begin(self, space: int) -> None:
        """Learn from the XML what the image of this encoding is; forget what came of others."""
        if space >= len(self._encodings):
            raise RefusedError("data", f"a readout of encoding {space}; the header has {len(self._encodings)}")
        assert self._coils is not None  # noqa: S101  the first readout has told
        self._image = _Image.read(self._encodings[space], space, self._coils, self._limits)
        for frame in [one for one in self._open.values() if one.space != space]:
            self._drop(frame)
        if self._image.separate:
            self._set_apart()

    def _take(self, frame: Frame) -> Frame:
        """Hand a frame over, with the calibration lines that serve it."""
        if not self._settled:
            # Lines shorter than those of the image are not of the same acquisition.
            self._settled = True
            if self._apart is None and frame.lengths[0] < frame.lengths[1]:
                self._set_apart()
        self._drop(frame)
        self._done.add(frame.key)
        self._calibrated.add(frame.key[-1])
        if self._apart is not None:
            frame.calibration = self._apart.get(frame.key[-1], Rows())
        return frame

    def _set_apart(self) -> None:
        """Sort the calibration lines that are here by slice; those to come will be, too."""
        self._apart = {}
        for frame in list(self._open.values()):
            self._apart.setdefault(frame.key[-1], Rows()).extend(frame.calibration)
            frame.calibration = Rows()
            if not frame.rows.bodies:
                del self._open[frame.space, frame.key]
                self.held -= _FRAME

    def _drop(self, frame: Frame) -> None:
        del self._open[frame.space, frame.key]
        self.held -= _FRAME + frame.rows.nbytes + frame.calibration.nbytes

    def _hold(self, count: int) -> None:
        self.held += count
        self._limits.check("held_bytes", self.held, "bytes of slices that are not complete")


@dataclass(frozen=True)
class _Image:
    """What the XML says of the image's encoding: how many readouts a frame has at the most, and how long they are."""

    encoding: Any
    space: int
    samples: int
    volume: bool
    separate: bool
    averages: int
    lines: int

    @classmethod
    def read(cls, encoding: Any, space: int, coils: int, limits: Limits) -> _Image:
        """Refuse what is not Cartesian or too large."""
        check_trajectory(encoding, echo_planar=False)
        volume = (value_of(encoding, "encodedSpace/matrixSize/z") or 0) > 1
        grid = encoded_grid(encoding, volume)
        limits.check("matrix", max(grid.readout, grid.lines, grid.partitions), "matrix size of the header")
        limits.check("matrix", grid.samples / _OVERSAMPLING, "samples of the header, oversampled")
        size = 8 * coils * grid.samples * grid.lines * grid.partitions
        limits.check("held_bytes", size, "bytes of one image, all coils")

        def count(name: str, size: int) -> int:
            low = value_of(encoding, f"encodingLimits/{name}/minimum") or 0
            high = value_of(encoding, f"encodingLimits/{name}/maximum")
            return int(min(max(size if high is None else high - low + 1, 1), 2**16))

        averages = count("average", 1)
        lines = count("kspace_encoding_step_1", grid.lines) * count("kspace_encoding_step_2", grid.partitions)
        mode = encoding.findtext("parallelImaging/calibrationMode", "")
        separate = mode in ("separate", "external")
        return cls(encoding, space, grid.samples, volume, separate, averages, lines * averages)
