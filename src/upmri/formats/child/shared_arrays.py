"""Arrays that go from a child to the program through shared memory.

The program makes the memory, of a fixed size that nobody can change, and hands it to the child. A child fills its two
halves in turn, and the program copies each half out before it looks at the values: a child cannot change them after
they were checked, and it decides on no size that was not checked.

All arrays of an answer follow one another, byte by byte, in pieces. Pieces are counted over all answers: piece k goes
through half k mod 2.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF = 2**25
_KIND = re.compile(r"[<>|][buifc]\d{1,2}")
_AXES = 8
_LONGEST = 2**48
ArraySpec = tuple[str, np.dtype[Any], tuple[int, ...]]


def make_room() -> int:
    """Return an open file of shared memory for two halves; pages take memory only when they are used."""
    if hasattr(os, "memfd_create"):
        room = os.memfd_create("upmri", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            room = os.dup(file.fileno())
    os.ftruncate(room, 2 * HALF)
    if hasattr(fcntl, "F_ADD_SEALS"):  # a child that made it shorter would stop the program with a SIGBUS
        fcntl.fcntl(room, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return room


def map_room(room: int, *, writable: bool) -> mmap.mmap:
    """Map the memory, and close the file."""
    try:
        return mmap.mmap(room, 2 * HALF, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(room)


def describe_arrays(arrays: dict[str, NDArray[Any]]) -> list[list[Any]]:
    """Return name, type and shape of each, as JSON."""
    return [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]


def check_specs(said: Any, max_bytes: int) -> list[ArraySpec]:
    """Return names, types and shapes as a child described them; ValueError where they are none, or too large."""
    if not isinstance(said, list) or len(said) > _AXES:
        raise ValueError("no list of arrays")
    specs: list[ArraySpec] = []
    for item in said:
        if not (isinstance(item, list) and len(item) == 3):
            raise ValueError("no description of an array")
        name, kind, shape = item
        if not (isinstance(name, str) and isinstance(kind, str) and _KIND.fullmatch(kind)):
            raise ValueError("no type of an array")
        if not (isinstance(shape, list) and len(shape) <= _AXES and all(_is_length(length) for length in shape)):
            raise ValueError("no shape of an array")
        try:
            specs.append((name, np.dtype(kind), tuple(shape)))
        except TypeError as error:
            raise ValueError("no type of an array") from error
    if len({name for name, _, _ in specs}) < len(specs):
        raise ValueError("two arrays of one name")
    total = sum(_sizes(specs))
    if total > max_bytes:
        raise ValueError(f"arrays of {total} bytes, more than {max_bytes}")
    return specs


def _is_length(length: Any) -> bool:
    return isinstance(length, int) and not isinstance(length, bool) and 0 <= length < _LONGEST


def _sizes(specs: Sequence[ArraySpec]) -> list[int]:
    return [math.prod(shape) * dtype.itemsize for _, dtype, shape in specs]


def piece_count(sizes: Sequence[int]) -> int:
    """Return the number of pieces in which arrays of these bytes are handed over."""
    return -(-sum(sizes) // HALF)


def _overlaps(sizes: Sequence[int], piece: int, half: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield which arrays have bytes in a piece of an answer: number of the array, bytes of it, bytes of the room."""
    first, last = piece * HALF, (piece + 1) * HALF
    place, begin = half * HALF, 0
    for number, size in enumerate(sizes):
        low, high = max(begin, first), min(begin + size, last)
        if low < high:
            yield number, slice(low - begin, high - begin), slice(place + low - first, place + high - first)
        begin += size


class GivenArrays:
    """Arrays that a child hands over, piece by piece; ``before`` pieces of other answers went through the room."""

    def __init__(self, arrays: dict[str, NDArray[Any]], room: mmap.mmap, before: int) -> None:
        self._before = before
        self._bytes = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
        self._room = np.frombuffer(room, np.uint8)
        self.pieces = piece_count([part.size for part in self._bytes])

    def fill(self, piece: int) -> None:
        """Copy a piece into its half."""
        for number, part, place in _overlaps([array.size for array in self._bytes], piece, (self._before + piece) % 2):
            self._room[place] = self._bytes[number][part]


class TakenArrays:
    """Arrays that the program takes over, piece by piece; ``before`` pieces of other answers went through the room."""

    def __init__(self, specs: list[ArraySpec], room: mmap.mmap, before: int) -> None:
        self._before = before
        self.arrays = {name: np.empty(shape, dtype) for name, dtype, shape in specs}
        self._bytes = [array.reshape(-1).view(np.uint8) for array in self.arrays.values()]
        self._room = np.frombuffer(room, np.uint8)
        self._sizes = _sizes(specs)
        self.pieces = piece_count(self._sizes)

    def take(self, piece: int) -> None:
        """Copy a piece out of its half."""
        for number, part, place in _overlaps(self._sizes, piece, (self._before + piece) % 2):
            self._bytes[number][part] = self._room[place]
