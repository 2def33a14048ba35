"""Blocks of a Siemens .dat file: measurements, the protocol of each, and the headers of its readouts.

The layout of the headers is that of twixtools. Its ``read_twix`` is not used: it reads every sample to find the
headers, never ends on some damaged files, and does not notice that a file was cut short.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard
from upmri.formats.grid import Ints

_BUFFERS = (b"Config\0", b"Dicom\0", b"Meas\0", b"MeasYaps\0", b"Phoenix\0", b"Spice\0", b"Protocol\0")
_MOST_MEASUREMENTS = 64
_ENTRY, _ENTRIES = 152, 8  # bytes of an entry, and where the first begins
_PROTOCOL_BYTES = 2**26
_HELD = 4  # bytes of memory per byte of a header: its copies, and the table of its counters
_DMA = 2**25  # the length of a block is in the bits below


def measurement_starts(head: bytes) -> list[tuple[int, int]] | None:
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


def protocol_length(data: mmap.mmap, offset: int, end: int) -> int:
    """Return the bytes of the protocol with which a measurement begins, checked against those there are."""
    if offset + 8 > end:
        raise InputError("cut short; there is none where a measurement should begin", field="protocol")
    (length,) = struct.unpack_from("<I", data, offset)
    if not 8 <= length <= min(_PROTOCOL_BYTES, end - offset):
        raise InputError(
            f"cut short, or damaged; a protocol declares {length} bytes, there are {end - offset}", field="protocol"
        )
    return int(length)


def find_blocks(data: mmap.mmap, at: int, end: int, layout: BlockLayout, max_bytes: int) -> SampleBlocks:
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
