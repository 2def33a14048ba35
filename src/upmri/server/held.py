"""A frame of a stream as the source of a scan; readouts are sorted, averaged and whitened as those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ismrmrd
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.scan import Scan
from upmri.formats import guard
from upmri.formats.acquisitions import AcquisitionSource, header_columns
from upmri.formats.grid import Ints
from upmri.formats.mrd_header import MrdHeader
from upmri.methods.base import Method

HEAD = np.dtype(ismrmrd.AcquisitionHeader)
SIGMA = "upmri_sigma"  # user parameter of the XML: σ₀ of k-space, where the sender knows it
_MAPS = 2**29  # bytes of coil maps that are kept for the next repetition
_PLACE = Path("stream")  # used in messages in place of the path of a file


@dataclass
class Known:
    """What all frames of a stream share: its XML and noise readouts, and what was computed from them so far."""

    xml: bytes
    noise: tuple[Any, Any] = (b"", b"")  # headers and samples
    covariances: dict[tuple[float | None, int], tuple[Tensor | None, str]] = field(default_factory=dict)
    maps: dict[int, Tensor | None] = field(default_factory=dict)
    adapted: dict[str, tuple[Method, dict[str, Any]]] = field(default_factory=dict)  # by their settings, with the facts


class HeldSource(AcquisitionSource):
    """Readouts in memory: ``parts`` are (headers, samples), to which the noise readouts of the stream are added.

    In 2-D it has one slice, in 3-D one for each position of the readout.
    """

    format = "MRD stream"

    def __init__(self, known: Known, parts: Sequence[tuple[Any, Any]], max_bytes: int = guard.MAX_BYTES) -> None:
        super().__init__(_PLACE, max_bytes)
        self._known = known
        with guard.naming(_PLACE):
            filled = [part for part in (known.noise, *parts) if len(part[0])]
            heads = [np.frombuffer(head, HEAD) for head, _ in filled]
            self._bodies = [np.frombuffer(body, np.complex64) for _, body in filled]
            table = header_columns(np.concatenate(heads))
            sizes = table["active_channels"] * table["number_of_samples"]
            owner = np.repeat(np.arange(len(heads)), [len(head) for head in heads])
            starts = [np.cumsum(sizes[owner == part]) - sizes[owner == part] for part in range(len(heads))]
            self._owner, self._start = owner, np.concatenate(starts)
            header = MrdHeader(known.xml, "header")
            self._sort(header, table)
        self._sigma = header.user_parameter(SIGMA)

    @property
    def volume(self) -> bool:
        """Whether slices are positions along the readout."""
        return self._volume

    def _read(self, keep: slice) -> Scan:
        scan = super()._read(keep)
        return replace(scan, noise=self._sigma) if self._sigma is not None and scan.noise is None else scan

    def _gather(self, rows: Ints, samples: int) -> NDArray[np.complex64]:
        out = np.empty((len(rows), self.coils, samples), np.complex64)
        for one, part, start in zip(out, self._owner[rows].tolist(), self._start[rows].tolist(), strict=True):
            one[:] = self._bodies[part][start : start + one.size].reshape(one.shape)
        return out

    def _find_covariance(self) -> Tensor | None:
        """Return Ψ, computed once per stream."""
        key = (self._noise_scale, self.coils)
        if key not in self._known.covariances:
            self._known.covariances[key] = (super()._find_covariance(), self._noise_note)
        covariance, self._noise_note = self._known.covariances[key]
        return covariance

    def _maps(self, frame: int) -> Tensor | None:
        """Return maps of separate calibration lines, computed once per slice."""
        number = int(self._frames[frame, -1])
        if number not in self._known.maps:
            if (len(self._known.maps) + 1) * self.slice_bytes > _MAPS:
                self._known.maps.clear()
            self._known.maps[number] = super()._maps(frame)
        return self._known.maps[number]
