"""The encoding of the image of a stream: how many readouts, how long, and how much memory its XML lets expect."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from upmri.core.errors import InputError
from upmri.formats.grid import AXES
from upmri.formats.mrd_header import Encoding
from upmri.server.limits import Limits

_OVERSAMPLING = 8  # the largest factor


@dataclass(frozen=True)
class ImageEncoding:
    """The encoding of the image.

    Attributes
    ----------
    encoding, space
        Part of the XML, and its number.
    samples
        Length of the readouts, at most.
    volume, averages
        Whether there are two phase encodings; averages of each line.
    lines
        Number of readouts of a frame, at most.
    slice_bytes
        Bytes of k-space of one slice of a frame on its grid; of a volume it is one position of the readout.
    """

    encoding: Encoding
    space: int
    samples: int
    volume: bool
    averages: int
    lines: int
    slice_bytes: int

    @classmethod
    def read(cls, encoding: Encoding, space: int, coils: int, limits: Limits) -> ImageEncoding:
        """Refuse what is not Cartesian or too large."""
        encoding.check_cartesian()
        volume = encoding.volume
        grid = encoding.grid(volume)
        limits.check("matrix", max(grid.readout, grid.lines, grid.partitions), "matrix size of the header")
        limits.check("matrix", grid.samples / _OVERSAMPLING, "samples of the header, oversampled")
        size = 8 * coils * grid.samples * grid.lines * grid.partitions
        limits.check("held_bytes", size, "bytes of one image, all coils")
        averages = encoding.length("average", 1)
        lines = encoding.length("kspace_encoding_step_1", grid.lines)
        partitions = encoding.length("kspace_encoding_step_2", grid.partitions)
        samples = grid.samples
        with suppress(InputError):  # which only matters where readouts are echo-planar
            samples = max(samples, 0 if (ramp := encoding.ramp) is None else ramp.samples)
        # As of a source: with the counts of readouts. Without counters of partitions a slice is (readout, line).
        slice_bytes = 8 * (coils + 1) * grid.lines * max(grid.readout, grid.partitions)
        return cls(encoding, space, samples, volume, averages, lines * partitions * averages, slice_bytes)

    @property
    def frames(self) -> int:
        """Number of frames of each slice that the XML names; 1 where it names none."""
        return math.prod(self.encoding.length(name, 1) for name in AXES[:-1])
