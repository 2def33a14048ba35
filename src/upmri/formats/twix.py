"""Siemens raw data, .dat ("twix"), of software VB and of VD and later.

How readouts become a scan is in :mod:`upmri.formats.readouts`. Of several measurements in a file the last is the
image, and those before it are adjustments, of which noise readouts are used. How a file is divided is in
:mod:`upmri.formats.twix_blocks`.

Sizes and fields of view are read from the protocol; the patient's name and whatever else it holds are not. It is not
always true (sequences of Pulseq keep the values of an unrelated protocol). Where readouts do not fit it, they count.
The bandwidth of noise readouts relative to imaging is not in the file, so σ₀ is None.

Headers give the centre of a slice and a quaternion (w, x, y, z), the rotation whose columns are the directions of
phase, readout and slice, as in siemens_to_ismrmrd. Indices of the image grow against those of encoded axes, see
:mod:`upmri.formats.acquisitions`; twixtools does the same. It is the slice that the console shows, and only Siemens'
own sequences are known to encode along its axes. Scans with others, such as Pulseq's, get no geometry.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard, stack
from upmri.formats.echo_planar import Navigators
from upmri.formats.grid import Grid, Ints, Table, place
from upmri.formats.readouts import ReadoutSource
from upmri.formats.siemens_protocol import SiemensProtocol
from upmri.formats.twix_blocks import BlockLayout, SampleBlocks, find_blocks, measurement_starts, protocol_length

READS = "Siemens .dat"
_SKIPPED = (  # flags
    *("RTFEEDBACK", "HPFEEDBACK", "REFPHASESTABSCAN", "PHASESTABSCAN", "PHASCOR", "noname60"),
    *("SLICE_ACCEL_REFSCAN", "SLICE_ACCEL_PHASCOR", "RETRO_DUMMYSCAN", "B1_CONTROLLOOP", "MDH_VOP"),
)
_COUNTERS = ("Rep", "Phs", "Set", "Eco", "Sli")  # of grid.AXES


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether a protocol begins where one should, by the name of its first part."""
    return measurement_starts(head) is not None


class TwixSource(ReadoutSource):
    """A Siemens file; headers are held, samples are read slice by slice."""

    format = "Siemens twix"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        starts, size = measurement_starts(guard.head(path)) or [], path.stat().st_size
        self._layout = BlockLayout.of(modern=starts != [(0, 0)])
        if len(starts) > 1:
            self._meta["measurement"] = f"{len(starts)} of {len(starts)}; those before it are adjustments"
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found, left = [], max_bytes
            for number, (offset, length) in enumerate(starts, 1):
                end = offset + length if length else size
                if end > size or (length == 0 and number < len(starts)):
                    raise InputError(f"cut short; measurement {number} ends at byte {end}, the file at {size}")
                body = offset + protocol_length(data, offset, end)
                found.append(find_blocks(data, body, end, self._layout, left))
                left -= found[-1].nbytes
            protocol = bytes(data[offset:body])
        self._sort(SiemensProtocol(protocol), found)

    def _sort(self, protocol: SiemensProtocol, found: list[SampleBlocks]) -> None:
        blocks = found[-1]
        left_out = blocks.flagged(*_SKIPPED)
        image = blocks.where(~left_out & ~blocks.flagged("NOISEADJSCAN"))
        header = image.header
        if not len(header):
            raise InputError("expected readouts of an image, there are none", field="data")
        protocol.check()
        coils, longest = np.unique(header["UsedChannels"]), header["SamplesInScan"].max()
        if len(coils) > 1:
            raise InputError(
                f"expected readouts of the same coils, got {coils.min()} to {coils.max()} of them", field="data"
            )
        reverse = image.flagged("REFLECT")
        alike = (blocks.header["UsedChannels"] == coils[0]) & np.isin(blocks.header["SamplesInScan"], longest)
        planar = blocks.flagged("PHASCOR") & alike & reverse.any()
        self._meta |= {"scanner": facts} if (facts := protocol.scanner) else {}
        self._meta |= {"left out": count} if (count := int(left_out.sum() - planar.sum())) else {}
        counter = {name: header["Counter"][name].astype(np.int64) for name in ("Lin", "Par", *_COUNTERS)}
        samples, centre = header["SamplesInScan"].astype(np.int64), header["CenterCol"].astype(np.int64)
        columns = _columns(samples, centre, round(protocol.base * protocol.oversampling))
        lines, line = _axis(counter["Lin"], int(np.median(header["CenterLin"])), protocol.lines)
        partitions, partition = 1, None
        if counter["Par"].any():
            partitions, partition = _axis(counter["Par"], int(np.median(header["CenterPar"])), protocol.partitions)
        grid = Grid(
            columns,
            max(1, round(columns / protocol.oversampling)),
            lines,
            partitions,
            protocol.spacing(columns, lines, partitions),
        )
        table = Table(
            line=place("lines", counter["Lin"], line, lines),
            partition=place("partitions", counter["Par"], partition, partitions),
            counters=np.stack([counter[name] for name in _COUNTERS], 1),
            samples=samples,
            centre=centre,
            skip=np.stack([header["CutOff"]["Pre"], header["CutOff"]["Post"]], 1).astype(np.int64),
            reverse=reverse,
            calibration=image.flagged("PATREFSCAN") & ~image.flagged("PATREFANDIMASCAN"),
        )
        self._image = image
        if planar.any():
            self._references = made = blocks.where(planar)
            counters = np.stack([made.header["Counter"][name].astype(np.int64) for name in _COUNTERS], 1)
            self._navigators = Navigators(np.arange(len(made.at)), counters, made.flagged("REFLECT"))
        self._ramp = protocol.ramp(columns) if reverse.any() and (samples == columns).all() else None
        self._noise = [part.where(part.flagged("NOISEADJSCAN")) for part in found]
        self._declared_separate = protocol.separate_calibration
        places = header["SliceData"]["SlicePos"]
        positions = np.stack([places[axis] for axis in ("Sag", "Cor", "Tra")], 1)
        directions = None
        if protocol.siemens_sequence:
            directions = stack.against(_directions(header["SliceData"]["Quaternion"]), grid)
        self._arrange(grid, table, int(coils[0]), positions, directions)

    def _fetch(self, rows: Ints) -> NDArray[np.complex64]:
        return self._gather(self._image.at[rows], int(self._table.samples[rows[0]]))

    def _fetch_navigators(self, number: Ints) -> NDArray[np.complex64]:
        return self._gather(self._references.at[number], int(self._references.header["SamplesInScan"][number[0]]))

    def _gather(self, places: Ints, count: int) -> NDArray[np.complex64]:
        kind, out = self._layout.samples(count), np.empty((len(places), self.coils, count), np.complex64)
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for part, at in zip(out, places.tolist(), strict=True):
                part[:] = np.frombuffer(data, kind, self.coils, at + self._layout.shared)["data"]
        return out

    def _fetch_noise(self, count: int) -> NDArray[np.complex64] | None:
        found: list[NDArray[np.complex64]] = []
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for blocks in reversed(self._noise):  # the measurement's own before those of an adjustment
                for at, header in zip(blocks.at.tolist(), blocks.header, strict=True):
                    if header["UsedChannels"] == self.coils and count > 0:
                        kind = self._layout.samples(int(header["SamplesInScan"]))
                        guard.check_bytes("a noise readout", self.coils * kind.itemsize, self.max_bytes)
                        found.append(np.frombuffer(data, kind, self.coils, at + self._layout.shared)["data"].copy())
                        count -= found[-1].nbytes
                if found:
                    return np.concatenate(found, 1)
        return None


open_source = TwixSource


def _directions(quaternions: NDArray[Any]) -> NDArray[np.float64]:
    """Return the directions of readout, phase and slice, (…, 3, 3); of length 1 where the quaternion is."""
    with np.errstate(invalid="ignore"):  # of a damaged file
        w, x, y, z = np.moveaxis(quaternions.astype(np.float64), -1, 0)
        phase = (w * w + x * x - y * y - z * z, 2 * (x * y + w * z), 2 * (x * z - w * y))
        readout = (2 * (x * y - w * z), w * w - x * x + y * y - z * z, 2 * (y * z + w * x))
        normal = (2 * (x * z + w * y), 2 * (y * z - w * x), w * w - x * x - y * y + z * z)
    return np.moveaxis(np.array([readout, phase, normal]), -1, 0)


def _columns(samples: Ints, centre: Ints, nominal: int) -> int:
    """Return the size of the readout's grid: that of a whole echo, of which an asymmetric one is a part."""
    longest = int(samples.max())
    if longest == nominal or not centre.any():
        return longest
    return 2 * int(np.maximum(centre, samples - centre).max())


def _axis(counter: Ints, centre: int, nominal: int) -> tuple[int, int | None]:
    """Return the size of the grid along lines or partitions and the counter of its centre, None if it is not known.

    The size is the protocol's, ``nominal``, unless counters do not fit it.
    """
    most = int(counter.max()) + 1
    if centre == 0:
        step = int(np.diff(np.unique(counter)).max(initial=1))
        return (nominal, None) if 0 <= nominal - most < step else (most + most % 2, None)
    span = 2 * max(centre - int(counter.min()), most - centre)
    return max(nominal, span), centre
