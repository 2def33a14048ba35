"""The filters of HDF5 chunks, undone here and not by the HDF5 library: gzip, lzf, shuffle and fletcher32.

The library does not compare the length of a decoded chunk with the declared one. A chunk that is too short leaves other
memory of the process in the array, one that is too long takes memory and time, and a checksum of less than 4 bytes ends
the process. Here the length after every step is known before, and decoding stops where it is exceeded.
"""

from __future__ import annotations

import zlib

import numpy as np

from upmri.core.errors import InputError
from upmri.formats import guard

GZIP, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000  # HDF5's numbers
NAMES = {GZIP: "gzip", SHUFFLE: "shuffle", FLETCHER32: "fletcher32", LZF: "lzf"}
_COMPRESSION = (GZIP, LZF)
_CHECKSUM = 4  # bytes that fletcher32 appends
_BLOCK = 2**13  # words of 16 bits: the sums over a block are below 2⁵³, exact in float64
_WEIGHTS = np.arange(_BLOCK, 0, -1, dtype=np.float64)


def check_filters(name: str, filters: tuple[int, ...]) -> None:
    """Refuse filters that cannot be undone here, and two compressions of the same chunk.

    Parameters
    ----------
    name
        Name of the array in error messages.
    filters
        HDF5's numbers of its filters, in the order in which they were applied.
    """
    if len(set(filters)) < len(filters) or not set(filters) <= set(NAMES) or set(_COMPRESSION) <= set(filters):
        raise InputError(f"expected no filters but {', '.join(NAMES.values())}, got {list(filters)}", field=name)


def longest_chunk(size: int) -> int:
    """Return the most bytes in which a chunk of ``size`` bytes is stored; both compressions grow by less than 4 %."""
    return size + size // 24 + 1024


def decode_chunk(name: str, raw: bytes, filters: tuple[int, ...], size: int, itemsize: int) -> bytes:
    """Return the bytes of a chunk as they were before the filters, exactly ``size`` of them.

    Parameters
    ----------
    name
        Name of the array in error messages.
    raw
        The chunk as it is stored.
    filters
        HDF5's numbers of the filters of this chunk, in the order in which they were applied.
    size
        Length of the chunk in bytes, as its shape declares it.
    itemsize
        Length of one element in bytes.
    """
    for at in reversed(range(len(filters))):
        if filters[at] in _COMPRESSION:
            decode = _inflate if filters[at] == GZIP else _decode_lzf
            raw = decode(name, raw, size + _CHECKSUM * (FLETCHER32 in filters[:at]))
        else:
            raw = _without_checksum(name, raw) if filters[at] == FLETCHER32 else _without_shuffle(raw, itemsize)
    if len(raw) != size:
        raise InputError(f"damaged: a chunk of {size} bytes holds {len(raw)}", field=name)
    return raw


def _inflate(name: str, raw: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    with guard.library(name):
        data = stream.decompress(raw, size + 1)
    return _exactly(name, data, size, stream.eof)


def _exactly(name: str, data: bytes, size: int, complete: bool) -> bytes:
    if len(data) != size or not complete:
        than = "more than" if len(data) > size else "not"
        raise InputError(f"damaged: a compressed chunk holds {than} the {size} bytes it declares", field=name)
    return data


def _decode_lzf(name: str, raw: bytes, size: int) -> bytes:
    """Undo LZF: runs of up to 32 bytes, and copies of up to 264 bytes from at most 8192 bytes before."""
    data, at, end = bytearray(), 0, len(raw)
    raw += b"\0\0"  # what is cut short is read beyond its end, and refused below
    while at < end and len(data) <= size:
        control, at = raw[at], at + 1
        if control < 32:
            data += raw[at : at + control + 1]
            at += control + 1
            continue
        length = (control >> 5) + 2
        if length == 9:
            length, at = 9 + raw[at], at + 1
        back, at = ((control & 31) << 8) + raw[at] + 1, at + 1
        start = len(data) - back
        if start < 0:
            raise InputError("damaged: a compressed chunk refers to bytes before its first", field=name)
        if back >= length:
            data += data[start : start + length]
        else:  # the copy overlaps itself: a pattern is repeated
            data += (data[start:] * (length // back + 1))[:length]
    return _exactly(name, bytes(data), size, at == end)


def _without_shuffle(raw: bytes, itemsize: int) -> bytes:
    """Undo shuffle: the first bytes of all elements, then all second bytes, …; a rest shorter than one is as it was."""
    count = len(raw) // itemsize
    planes = np.frombuffer(raw, np.uint8, count * itemsize).reshape(itemsize, count)
    return planes.T.tobytes() + raw[count * itemsize :]


def _without_checksum(name: str, raw: bytes) -> bytes:
    if len(raw) <= _CHECKSUM:
        raise InputError(f"damaged: a chunk of {len(raw)} bytes holds no more than a checksum", field=name)
    data, stored = raw[:-_CHECKSUM], int.from_bytes(raw[-_CHECKSUM:], "little")
    found = _fletcher32(data)
    swapped = (found & 0x00FF00FF) << 8 | found >> 8 & 0x00FF00FF  # as HDF5 wrote it before version 1.6.3
    if stored not in (found, swapped):
        raise InputError("damaged: a chunk does not have the checksum that is stored with it", field=name)
    return data


def _fletcher32(data: bytes) -> int:
    """Return Fletcher's checksum of words wᵢ of 16 bits, big-endian: Σ wᵢ and Σ (n − i) wᵢ modulo 65535."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), "<u2")
    first = second = 0
    for at in range(0, len(words), _BLOCK):
        values = words[at : at + _BLOCK].astype(np.float64)
        second += len(values) * first + int(values @ _WEIGHTS[_BLOCK - len(values) :])
        first += int(values.sum())
    # To swap the bytes of a word is to multiply it by 256 modulo 65535; 65535 stands for 0 unless all words are 0.
    low, high = ((256 * total - 1) % 65535 + 1 if total else 0 for total in (first, second))
    return high << 16 | low
