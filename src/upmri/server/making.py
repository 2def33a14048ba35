"""The images of one job of a worker: the slices of a frame one by one, or frames of a place together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.inference.scan_session import Session
from upmri.inference.whole_series import one_frame, reconstruct_frames
from upmri.server.held import HeldSource


@dataclass(frozen=True)
class Made:
    """An image, and what it was made from.

    Attributes
    ----------
    frame, index
        Number of the frame in its job, and of the slice in its frame: the position of the readout in a volume.
    scan
        The slice.
    image, std
        Image (readout, phase) and, if there is one, its standard deviation.
    seconds
        Time of the reconstruction; of frames together, an equal share for each.
    bounds
        Bounds on the error of the image, if they were asked for.
    alone
        What is wrong with it as the only frame of its place, if the method is one over time.
    """

    frame: int
    index: int
    scan: Scan
    image: Tensor
    std: Tensor | None
    seconds: float
    bounds: Bounds | None = None
    alone: str = ""

    @property
    def found(self) -> dict[str, Any]:
        """What is to be said of this image: that its slice has no samples, or one frame, and bounds on its error."""
        found: dict[str, Any] = {} if bool(self.scan.mask.any()) else {"empty_slices": [0]}
        found |= {"one_frame": self.alone} if self.alone else {}
        return found if self.bounds is None else found | {"bounds": self.bounds.summary}


def make_images(session: Session, sources: Sequence[HeldSource], skip: int = 0) -> Iterator[Made]:
    """Yield the images of a job, by slice and then by frame, without the first ``skip``, which another worker made.

    Parameters
    ----------
    session
        Session of the method.
    sources
        Frames, in the order of time: several for a method over time, otherwise one.
    skip
        Number of images that are not needed.
    """
    first = sources[0]
    if any((one.slices, one.volume) != (first.slices, first.volume) for one in sources):
        raise InputError("expected frames of one shape, all with partitions or none", field="data")
    alone = one_frame(session.method.name) if session.method.dynamic and len(sources) == 1 else ""
    for index in range(skip // len(sources), first.slices):
        scans = [source.read_one(index, range(source.slices)) for source in sources]
        start = time.perf_counter()
        made = reconstruct_frames(session, scans) if session.method.dynamic else session(*scans)
        seconds = (time.perf_counter() - start) / len(sources)
        for frame, scan in enumerate(scans):
            if index * len(sources) + frame >= skip:
                std = None if made.std is None else made.std[frame]
                bounds = None if made.bounds is None else made.bounds.take([frame])
                yield Made(frame, index, scan, made.image[frame], std, seconds, bounds, alone)
