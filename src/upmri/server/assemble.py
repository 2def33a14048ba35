"""Sorting of the readouts of a stream, in the order of their arrival, into complete frames.

A frame is one slice of one repetition, cardiac phase, set and contrast. It is complete with the readout that is flagged
as the last in its slice, in its repetition or in the measurement, when every line that the XML names has been read out,
or at the end of the stream. What the flags of a readout mean is in :mod:`upmri.formats.readout_flags`, the same for
files, and how readouts become a scan in :mod:`upmri.formats.readouts`.

Of several encodings the image is that of the first readout that is neither noise nor calibration. Lines for calibration
belong to their frame, unless they were acquired separately: then those that arrive before the first frame of a slice is
complete are used for all frames of the slice. Readouts for phase correction go with their frame, too, or with the next
frames of their slice; what they are used for is in :mod:`upmri.formats.echo_planar`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upmri.core.errors import InputError
from upmri.formats.grid import AXES
from upmri.formats.mrd_header import MrdHeader
from upmri.formats.readout_flags import ReadoutFlags, calibration_is_separate, classify
from upmri.server.image_encoding import ImageEncoding
from upmri.server.limits import Limits, RefusedError

_NOISE_BYTES = 2**26  # more noise does not improve its covariance
_FRAME = 2048  # bytes of an open frame beside its readouts

Key = tuple[int, ...]


@dataclass
class Rows:
    """Readouts: their headers one after the other, and the samples of each."""

    heads: bytearray = field(default_factory=bytearray)
    bodies: list[bytes] = field(default_factory=list)
    nbytes: int = 0

    def add(self, head: bytes, body: bytes) -> int:
        """Append one readout and return its bytes."""
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
    """Readouts of a frame, of its calibration and of its phase correction; ``key`` is its number on each of AXES.

    ``made`` is the number of images that were made of it so far: a volume has several.
    """

    key: Key
    space: int
    rows: Rows = field(default_factory=Rows)
    calibration: Rows = field(default_factory=Rows)
    navigators: Rows = field(default_factory=Rows)
    lines: set[tuple[int, int, int]] = field(default_factory=set)
    made: int = 0

    @property
    def frames(self) -> list[Frame]:
        """The frame alone, as the work of a worker; see :class:`upmri.server.together.Place`."""
        return [self]

    @property
    def where(self) -> str:
        """Its numbers in words; those that are 0 are left out, but for the slice."""
        named = zip(AXES, self.key, strict=True)
        return ", ".join(f"{name} {value}" for name, value in named if value or name == AXES[-1])


@dataclass
class Seen:
    """What the readouts of one encoding have shown so far: the lengths of lines in samples."""

    shortest_calibration: int = 2**16
    longest_imaging: int = 0


class Assembler:
    """Sorts the readouts of one stream.

    Attributes
    ----------
    xml
        The header of the stream.
    noise
        The noise readouts.
    image
        The encoding of the image; None before its first readout.
    held
        Bytes of readouts whose frame is not complete, or is kept.
    late
        Number of readouts that arrived too late to be used: after their frame was complete, or noise after imaging.
    readouts
        Number of all readouts.
    bad_noise
        Number of noise readouts that were left out because they are not finite.
    """

    def __init__(self, xml: bytes, limits: Limits) -> None:
        self.xml, self._limits = xml, limits
        self._encodings = MrdHeader(xml, "header").encodings
        if not self._encodings:
            raise InputError("expected an encoding in the XML, there is none", field="header")
        self.noise = Rows()
        self.held = self.late = self.readouts = self.bad_noise = 0
        self._open: dict[tuple[int, Key], Frame] = {}
        self._done: set[Key] = set()
        self._seen: dict[int, Seen] = {}  # by encoding
        self._navigators: dict[Key, Rows] = {}  # readouts for phase correction, by frame
        self._coils: int | None = None
        self.image: ImageEncoding | None = None
        self._separate: dict[int, Rows] | None = None  # calibration lines that were acquired separately, by slice
        self._calibrated: set[int] = set()  # slices of which a frame is complete
        self._kept = 0

    def add(self, head: Any, body: bytes) -> list[Frame]:
        """Take a readout and return the frames that it completes."""
        self.readouts += 1
        self._limits.check("readouts", self.readouts, "readouts of the stream")
        flags = classify(head.flags)
        if flags.noise:
            if self.image is not None:
                self.late += 1
            elif not np.isfinite(np.frombuffer(body, "<f4")).all():
                self.bad_noise += 1  # one of them would spoil the covariance, and with it all images
            elif self.noise.nbytes < _NOISE_BYTES:
                self._hold(self.noise.add(bytes(head), body))
            return []
        key = tuple(getattr(head.idx, name) for name in AXES)
        if flags.in_image:
            self._put(head, body, key, flags)
        elif flags.phase_correction:
            self._hold(self._navigators.setdefault(key, Rows()).add(bytes(head), body))
        if self.image is None:
            return []
        # An end that is flagged in a readout that is left out is an end all the same.
        if flags.last_in_measurement:
            return [self._take(one) for one in list(self._open.values()) if one.rows.bodies]
        if flags.last_in_repetition:
            over = [one for one in self._open.values() if one.rows.bodies and one.key[0] == key[0]]
            return [self._take(one) for one in over]
        frame = self._open.get((self.image.space, key))
        if frame is None or flags.calibration_only:
            return []
        last = flags.last_in_slice and not self.image.volume and head.idx.average >= self.image.averages - 1
        return [self._take(frame)] if last or len(frame.lines) >= self.image.lines else []

    def rest(self) -> Iterator[Frame]:
        """Yield the frames that are not complete, at the end of the stream."""
        if self.image is None:
            raise RefusedError("data", "the stream ended without a readout of an image; expected some")
        for frame in list(self._open.values()):
            yield self._take(frame)

    def keep(self, count: int) -> None:
        """Count so many bytes of complete frames, which are kept for others of their place; below 0: fewer."""
        self._kept += count
        self._hold(count)

    # --- where a readout goes -----------------------------------------------------------------------------------------

    def _put(self, head: Any, body: bytes, key: Key, flags: ReadoutFlags) -> None:
        space, calibration = head.encoding_space_ref, flags.calibration_only
        self._coils = self._coils or head.active_channels
        if head.active_channels != self._coils:
            raise RefusedError("data", f"expected readouts of {self._coils} coils, got one of {head.active_channels}")
        if self.image is None and not calibration:
            self._begin(space)
        if self.image is not None:
            if space != self.image.space:
                return  # another encoding is not the image
            if head.number_of_samples > self.image.samples:
                raise RefusedError(
                    "data", f"a readout of {head.number_of_samples} samples, {self.image.samples} expected"
                )
        seen = self._seen.setdefault(space, Seen())
        length = head.number_of_samples - head.discard_pre - head.discard_post
        if calibration:
            seen.shortest_calibration = min(seen.shortest_calibration, length)
        else:
            seen.longest_imaging = max(seen.longest_imaging, length)
        if calibration and self._separate is not None:
            if key[-1] not in self._calibrated:
                self._hold(self._separate.setdefault(key[-1], Rows()).add(bytes(head), body))
            return
        if key in self._done:
            self.late += 1
            return
        frame = self._open.get((space, key))
        if frame is None:
            frame = self._open[space, key] = Frame(key, space)
            self._hold(_FRAME)
            self._limits.check("frames", len(self._open), "slices, repetitions, … begun and not complete")
        self._hold((frame.calibration if calibration else frame.rows).add(bytes(head), body))
        if not calibration:
            at = head.idx
            frame.lines.add((at.kspace_encode_step_1, at.kspace_encode_step_2, at.average))

    def _begin(self, space: int) -> None:
        """Find the image of this encoding in the XML; drop the readouts of other encodings."""
        if space >= len(self._encodings):
            raise RefusedError("data", f"a readout of encoding {space}; the header has {len(self._encodings)}")
        assert self._coils is not None  # noqa: S101, set by the first readout
        self.image = ImageEncoding.read(self._encodings[space], space, self._coils, self._limits)
        for frame in [one for one in self._open.values() if one.space != space]:
            self._drop(frame)
        if self.image.encoding.separate_calibration:
            self._separate_calibration()

    def _take(self, frame: Frame) -> Frame:
        """Remove a frame from those that are open and return it with its calibration lines."""
        seen = self._seen[frame.space]
        if self._separate is None and calibration_is_separate(False, seen.shortest_calibration, seen.longest_imaging):
            self._separate_calibration()
        self._drop(frame)
        self._done.add(frame.key)
        self._calibrated.add(frame.key[-1])
        if self._separate is not None:
            frame.calibration = self._separate.get(frame.key[-1], Rows())
        self._add_navigators(frame)
        return frame

    def _add_navigators(self, frame: Frame) -> None:
        """Add the readouts for phase correction of a frame, or the last ones of its slice; forget older ones."""
        same = [key for key in self._navigators if key[-1] == frame.key[-1]]
        if not same:
            return
        used = frame.key if frame.key in same else same[-1]
        frame.navigators = self._navigators[used]
        for key in same:
            if key != used and key in self._done:
                self.held -= self._navigators.pop(key).nbytes

    def _separate_calibration(self) -> None:
        """Keep calibration lines by slice instead of by frame, those that are here and those to come."""
        self._separate = {}
        for frame in list(self._open.values()):
            self._separate.setdefault(frame.key[-1], Rows()).extend(frame.calibration)
            frame.calibration = Rows()
            if not frame.rows.bodies:
                del self._open[frame.space, frame.key]
                self.held -= _FRAME

    def _hold(self, count: int) -> None:
        self.held += count
        more = ", and of frames kept for their place" if self._kept else ""
        self._limits.check("held_bytes", self.held, f"bytes of slices that are not complete{more}")

    def _drop(self, frame: Frame) -> None:
        del self._open[frame.space, frame.key]
        self.held -= _FRAME + frame.rows.nbytes + frame.calibration.nbytes
