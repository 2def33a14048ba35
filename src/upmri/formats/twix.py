"""Siemens raw data, .dat ("twix"), of software VB and of VD and later.

How readouts become a scan is in :mod:`upmri.formats.readouts`. Of several measurements in a file the last is the
image, and those before it are adjustments, of which noise readouts are used. The layout of the headers is that of
twixtools. Its ``read_twix`` is not used: it reads every sample to find the headers, never ends on some damaged files,
and does not notice that a file was cut short.

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
import struct
from array import array
from dataclasses import dataclass
from importlib import import_module
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

READS = "Siemens .dat"
_BUFFERS = (b"Config\0", b"Dicom\0", b"Meas\0", b"MeasYaps\0", b"Phoenix\0", b"Spice\0", b"Protocol\0")
_MOST_MEASUREMENTS, _MOST_BUFFERS = 64, 64
_ENTRY, _ENTRIES = 152, 8  # bytes of an entry, and where the first begins
_PROTOCOL_BYTES = 2**26
_HELD = 4  # bytes of memory per byte of a header: its copies, and the table of its counters
_DMA = 2**25  # the length of a block is in the bits below
_SKIPPED = (  # flags
    *("RTFEEDBACK", "HPFEEDBACK", "REFPHASESTABSCAN", "PHASESTABSCAN", "PHASCOR", "noname60"),
    *("SLICE_ACCEL_REFSCAN", "SLICE_ACCEL_PHASCOR", "RETRO_DUMMYSCAN", "B1_CONTROLLOOP", "MDH_VOP"),
)
_COUNTERS = ("Rep", "Phs", "Set", "Eco", "Sli")  # of grid.AXES


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether a protocol begins where one should, by the name of its first part."""
    return _starts(head) is not None


def _starts(head: bytes) -> list[tuple[int, int]] | None:
    """Return (offset, length) of the measurements, of length 0 where it is not known; None for any other file."""
    if len(head) > 16 and head[8:].startswith(_BUFFERS):
        return [(0, 0)]  # VB: one measurement, no list of them
    if len(head) < _ENTRIES + _ENTRY:
        return None
    identity, count = struct.unpack_from("<II", head)
    if identity >= 10000 or not 1 <= count <= _MOST_MEASUREMENTS or len(head) < _ENTRIES + count * _ENTRY:
        return None
    starts = [struct.unpack_from("<QQ", head, _ENTRIES + i * _ENTRY + 8) for i in range(count)]
    return starts if head[starts[0][0] + 8 :].startswith(_BUFFERS) else None


@dataclass(frozen=True)
class BlockLayout:
    """The layout of a block of samples: headers and their sizes, and the flags, as twixtools defines them."""

    header: np.dtype[Any]
    shared: int  # bytes of the header that all channels share
    channel: int  # bytes of the header that each has
    flags: dict[str, int]

    @classmethod
    def of(cls, modern: bool) -> BlockLayout:
        """Return the layout of VD and later, or of VB."""
        try:
            defined = import_module("twixtools.mdh_def")
        except ImportError as error:
            raise InputError("Siemens .dat is read with twixtools: pip install 'upmri[siemens]'") from error
        header = np.dtype(defined.Scan_header if modern else defined.VB17_header)
        channel = np.dtype(defined.Channel_header).itemsize if modern else header.itemsize
        return cls(header, header.itemsize if modern else 0, channel, defined.mask_dict)

    def samples(self, count: int) -> np.dtype[Any]:
        """Return the type of one channel's part of a block."""
        return np.dtype([("header", f"V{self.channel}"), ("data", "<c8", (count,))])


@dataclass(frozen=True)
class SampleBlocks:
    """The blocks of a measurement that hold samples: where they begin, and their headers."""

    at: Ints
    header: NDArray[Any]
    layout: BlockLayout

    @property
    def nbytes(self) -> int:
        """Bytes of memory for all that is made of the headers."""
        return len(self.at) * _HELD * self.layout.header.itemsize

    def flagged(self, *names: str) -> NDArray[np.bool_]:
        """Return which have any of these flags."""
        bits = sum(1 << self.layout.flags[name] for name in names)
        return (self.header["EvalInfoMask"] & np.uint64(bits)) != 0

    def where(self, kept: NDArray[np.bool_]) -> SampleBlocks:
        """Return some of them."""
        return SampleBlocks(self.at[kept], self.header[kept], self.layout)


class TwixSource(ReadoutSource):
    """A Siemens file; headers are held, samples are read slice by slice."""

    format = "Siemens twix"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        starts, size = _starts(guard.head(path)) or [], path.stat().st_size
        self._layout = BlockLayout.of(modern=starts != [(0, 0)])
        if len(starts) > 1:
            self._meta["measurement"] = f"{len(starts)} of {len(starts)}; those before it are adjustments"
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found, left = [], max_bytes
            for number, (offset, length) in enumerate(starts, 1):
                end = offset + length if length else size
                if end > size or (length == 0 and number < len(starts)):
                    raise InputError(f"cut short; measurement {number} ends at byte {end}, the file at {size}")
                body = offset + _protocol_length(data, offset, end)
                found.append(_walk(data, body, end, self._layout, left))
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


# --- blocks -----------------------------------------------------------------------------------------------------------


def _protocol_length(data: mmap.mmap, offset: int, end: int) -> int:
    if offset + 8 > end:
        raise InputError("cut short; there is none where a measurement should begin", field="protocol")
    (length,) = struct.unpack_from("<I", data, offset)
    if not 8 <= length <= min(_PROTOCOL_BYTES, end - offset):
        raise InputError(
            f"cut short, or damaged; a protocol declares {length} bytes, there are {end - offset}", field="protocol"
        )
    return int(length)


def _walk(data: mmap.mmap, at: int, end: int, layout: BlockLayout, max_bytes: int) -> SampleBlocks:
    """Go from block to block until the one that says it is the last, which must be there."""
    header, offset = layout.header, {name: field[1] for name, field in (layout.header.fields or {}).items()}
    last, other = 1 << layout.flags["ACQEND"], 1 << layout.flags["SYNCDATA"]
    # The limit is checked on the way, because a file can have any number of empty blocks and take no space on the disk.
    most, found = max_bytes // (_HELD * header.itemsize), array("q")
    while True:
        if at + header.itemsize > end:
            raise InputError(f"cut short; after {len(found)} readouts the mark of the end is missing")
        (flags,) = struct.unpack_from("<Q", data, at + offset["EvalInfoMask"])
        if flags & last:
            break
        if flags & other:
            (length,) = struct.unpack_from("<I", data, at + offset["FlagsAndDMALength"])
            length %= _DMA
        else:
            samples, channels = struct.unpack_from("<HH", data, at + offset["SamplesInScan"])
            length = layout.shared + channels * (layout.channel + 8 * samples)
            found.append(at)
            if len(found) > most:
                guard.check_bytes("headers of its readouts", len(found) * _HELD * header.itemsize, max_bytes)
        if length < header.itemsize or at + length > end:
            raise InputError(f"cut short, or damaged; block {len(found)} declares {length} bytes, there are {end - at}")
        at += length
    headers = np.empty(len(found), header)
    for number, position in enumerate(found):
        headers[number] = np.frombuffer(data, header, 1, position)[0]
    return SampleBlocks(np.array(found, np.int64), headers, layout)


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
