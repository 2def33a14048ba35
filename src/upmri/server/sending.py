"""A scan as an MRD stream: the readouts of an ISMRMRD file as they are; of other formats, made from the k-space.

With a mask of lines, each line is a readout. With a 2-D mask, each point is a readout of one sample, in a 3-D encoding
whose two phase encodings are the axes of the image. Of a slice without samples, the centre is sent. Coil maps and a
reference are not sent: MRD has none.

Where the scan says which slices are frames of one place (``meta["axes"]``), the counter of slices is the number of the
place, and that of repetitions the number of the frame; of phases, sets or contrasts where the axis has this name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import ismrmrd
import numpy as np

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import Source, mrd
from upmri.formats.grid import AXES
from upmri.physics.frames import PLACES, places
from upmri.server import wire
from upmri.server.held import SIGMA

_COUNTER = 2**16  # values of a counter in MRD


def not_sent(source: Source) -> list[str]:
    """Return the parts of a scan that MRD has no message for."""
    if source.format == mrd.MrdSource.format:
        return []
    first = source.read(0)
    return [name for name in ("maps", "reference") if getattr(first, name) is not None]


def messages(source: Source, slices: str | None) -> Iterator[bytes]:
    """Return the messages of a scan, from the XML header to the last readout.

    Parameters
    ----------
    source
        Open scan.
    slices
        Slices to send, such as ``"3:7"``; None for all.
    """
    if source.format != mrd.MrdSource.format:
        return _from_kspace(source, slices)
    if slices is not None:
        raise InputError(
            "the readouts of an ISMRMRD file are sent as they are, all of them", field="--slices", path=source.path
        )
    return _from_readouts(source)


def _from_readouts(source: Source) -> Iterator[bytes]:
    stored = source.acquisitions()
    assert stored is not None  # noqa: S101  the format has them
    yield wire.header_message(stored.xml)
    for head, body in zip(stored.heads, stored.samples, strict=True):
        if len(body) != 8 * int(head["active_channels"]) * int(head["number_of_samples"]):
            raise InputError(
                f"a readout has {len(body)} bytes, which is not the number in its header", path=source.path
            )
        yield wire.acquisition_message(head.tobytes(), body)


# --- readouts made from k-space ---------------------------------------------------------------------------------------


def _from_kspace(source: Source, slices: str | None) -> Iterator[bytes]:
    wanted = len(source.indices(slices))
    if max(wanted, *source.matrix) >= _COUNTER or source.coils >= _COUNTER:
        raise InputError(f"MRD counts to {_COUNTER - 1}; send fewer slices at a time", path=source.path)
    first = next((scan for scan in source.each(slices) if bool(scan.mask.any())), None)
    if first is None:
        raise InputError("expected samples in at least one slice; nothing was sampled", field="mask", path=source.path)
    points = first.mask.shape[1] > 1  # of all slices: the header says it, and an empty slice has no pattern
    yield wire.header_message(_xml(first).encode())
    frames = _counters(first.meta, source.slices)
    for number, (index, scan) in enumerate(zip(source.indices(slices), source.each(slices), strict=True)):
        if scan.mask.shape[1] > 1 and not points:
            raise InputError(
                f"slice {index} has a 2-D mask, those before it have whole lines; send them apart, with --slices",
                field="mask",
                path=source.path,
            )
        yield from _readouts(scan, points, {"slice": number} if frames is None else frames[index])


def _counters(meta: dict[str, Any], count: int) -> list[dict[str, int]] | None:
    """Return the counters of each of ``count`` slices; None where they are not frames of places."""
    place_of = places(meta, count)
    if place_of is None:
        return None
    times = [name for name in meta.get("axes", ()) if name not in PLACES]
    name = times[0] if len(times) == 1 and times[0] in AXES else AXES[0]
    seen: Counter[int] = Counter()
    found = []
    for place in place_of:
        found.append({"slice": place, name: seen[place]})
        seen[place] += 1
    if max(*place_of, *seen.values()) >= _COUNTER:
        raise InputError(f"MRD counts to {_COUNTER - 1}, the scan has more frames or places", field="axes")
    return found


def _xml(scan: Scan) -> str:
    points = scan.mask.shape[1] > 1
    height, width = scan.matrix
    sizes = (1, height, width) if points else (height, width, 1)
    spacing = scan.spacing or (0.0, 0.0, 0.0)
    across = (spacing[2], spacing[0], spacing[1]) if points else spacing
    space = "".join(f"<{axis}>{size}</{axis}>" for axis, size in zip("xyz", sizes, strict=True))
    field = "".join(f"<{a}>{n * mm!r}</{a}>" for a, n, mm in zip("xyz", sizes, across, strict=True))
    sigma = "" if scan.noise is None else (
        f"<userParameters><userParameterDouble><name>{SIGMA}</name><value>{scan.noise!r}</value></userParameterDouble>"
        "</userParameters>"
    )  # fmt: skip
    limits = "".join(
        f"<{name}><minimum>0</minimum><maximum>{size - 1}</maximum><center>{size // 2}</center></{name}>"
        for name, size in (("kspace_encoding_step_1", sizes[1]), ("kspace_encoding_step_2", sizes[2]))
    )
    sides = "".join(
        f"<{side}><matrixSize>{space}</matrixSize><fieldOfView_mm>{field}</fieldOfView_mm></{side}>"
        for side in ("encodedSpace", "reconSpace")
    )
    return (
        '<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><experimentalConditions>'
        "<H1resonanceFrequency_Hz>0</H1resonanceFrequency_Hz></experimentalConditions><encoding>"
        f"{sides}<encodingLimits>{limits}</encodingLimits><trajectory>cartesian</trajectory></encoding>"
        f"{sigma}</ismrmrdHeader>"
    )


def _readouts(scan: Scan, points: bool, counters: dict[str, int]) -> Iterator[bytes]:
    rows = scan.matrix[0] if points else 1
    at = scan.mask[0].expand(rows, -1).nonzero().tolist()  # (0, line) or (row, column)
    # An empty slice is its centre, which is 0: without a readout, the server would make no image of it.
    at = at or [[rows // 2, scan.matrix[1] // 2]]
    kspace = scan.kspace[0].numpy()
    for count, (row, column) in enumerate(at):
        data = kspace[:, row : row + 1, column] if points else kspace[:, :, column]
        head = ismrmrd.AcquisitionHeader()
        head.version, head.scan_counter = 1, count
        head.number_of_samples, head.center_sample = data.shape[1], data.shape[1] // 2
        head.active_channels = head.available_channels = data.shape[0]
        for name, value in counters.items():
            setattr(head.idx, name, value)
        head.idx.kspace_encode_step_1, head.idx.kspace_encode_step_2 = (row, column) if points else (column, 0)
        _place(head, scan, points)
        if count == len(at) - 1:
            head.set_flag(ismrmrd.ACQ_LAST_IN_REPETITION if points else ismrmrd.ACQ_LAST_IN_SLICE)
        yield wire.acquisition_message(bytes(head), np.ascontiguousarray(data, "<c8").tobytes())


def _place(head: Any, scan: Scan, points: bool) -> None:
    """Set the centre of the slice and the directions of readout, line and partition, if the scan has a geometry."""
    place = scan.meta.get("geometry")
    if place is None or scan.spacing is None:
        return
    names = ("slice", "readout", "phase") if points else ("readout", "phase", "slice")
    head.read_dir[:], head.phase_dir[:], head.slice_dir[:] = (place[name] for name in names)
    centre = np.array(place["position"])
    for name, size, mm in zip(("readout", "phase"), scan.matrix, scan.spacing, strict=False):
        centre = centre + (size // 2) * mm * np.array(place[name])
    head.position[:] = centre
