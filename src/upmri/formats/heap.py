"""HDF5 data of variable length, read without the HDF5 library.

Such data lies in "global heap collections" of the file, and an element of a dataset holds only a reference: length,
address of the collection, index in there. The library follows references blindly, and with damaged ones it can run for
ever or crash the program. The library is therefore asked only where the elements lie. References are followed here,
each checked against the file, at the cost of one pass over the collections that are used. The format is that of the
HDF5 File Format Specification, section III.E, the same in every version of HDF5.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard, hdf5

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
_COLLECTION = struct.Struct("<4sB3xQ")  # signature, version, size with this header
_OBJECT = struct.Struct("<HH4xQ")  # index, references to it, size without this header
_DATA = "variable-length data"
_MOST = 2**16  # objects of a collection: their index has two bytes


class Heap:
    """The bytes of an HDF5 file, mapped into memory until the end of the ``with`` block."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self._bytes)
        self._collections: dict[int, dict[int, tuple[int, int]]] = {}
        self._walked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bytes.close()

    def take(self, reference: Any, itemsize: int) -> bytes:
        """Return the bytes that one reference leads to: ``length`` elements of ``itemsize`` bytes."""
        count = int(reference["length"]) * itemsize
        if count == 0:
            return b""
        at = self._find(int(reference["address"]), int(reference["index"]), count)
        return self._bytes[at : at + count]

    def gather(self, references: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return what all these references lead to, each an array of this type and shape: (reference, *shape)."""
        out = np.empty((len(references), *shape), dtype)
        count = int(np.prod(shape))
        if (references["length"] != count).any():
            raise InputError(f"expected {count} values, found {references['length'].max()}", field=_DATA)
        if count == 0:
            return out
        flat = out.reshape(len(references), -1)
        for row, (_, address, index) in zip(flat, references.tolist(), strict=True):
            at = self._find(address, index, count * dtype.itemsize)
            row[:] = np.frombuffer(self._bytes, dtype, count, at)
        return out

    def plain_array(self, name: str, dtype: np.dtype[Any], count: int, at: int) -> NDArray[Any]:
        """Return ``count`` elements that lie in the file from byte ``at`` on."""
        if at < 0 or at + count * dtype.itemsize > self.size:
            raise InputError("cut short; some of its elements lie beyond the end of the file", field=name)
        # Copied, because the file is closed before the array is used.
        return np.frombuffer(self._bytes, dtype, count, at).copy()

    def _find(self, address: int, index: int, count: int) -> int:
        """Return where the ``count`` bytes of an object begin."""
        objects = self._collections.get(address)
        if objects is None:
            objects = self._collections[address] = self._walk(address)
        at, size = objects.get(index, (0, -1))
        if size < count:
            raise InputError(f"a reference leads nowhere (object {index} at {address})", field=_DATA)
        return at

    def _walk(self, address: int) -> dict[int, tuple[int, int]]:
        """Return where the objects of a collection begin and how long they are, by index."""
        if address + _COLLECTION.size > self.size:
            raise InputError(f"a reference leads beyond the end of the file (to {address})", field=_DATA)
        signature, version, size = _COLLECTION.unpack_from(self._bytes, address)
        end = address + size
        if signature != b"GCOL" or version != 1 or end > self.size:
            raise InputError(f"a reference leads to {address}, where there is none", field=_DATA)
        objects: dict[int, tuple[int, int]] = {}
        at = address + _COLLECTION.size
        while at + _OBJECT.size <= end:
            index, _, length = _OBJECT.unpack_from(self._bytes, at)
            at += _OBJECT.size
            if index == 0:  # free space up to the end
                break
            if at + length > end or len(objects) == _MOST:
                raise InputError(f"the collection at {address} is damaged", field=_DATA)
            objects[index] = (at, length)
            at += (length + 7) // 8 * 8
            # True collections do not overlap, so that this bounds the work by the size of the file.
            self._walked += _OBJECT.size
            if self._walked > self.size:
                raise InputError("its collections overlap", field=_DATA)
        return objects


@dataclass(frozen=True)
class Records:
    """The elements of a dataset of one axis, found but not yet read; some or all are of variable length.

    ``dtype`` is the type that h5py reports, ``count`` the number of elements, ``chunk`` the length of a chunk, None
    where they are stored in one piece.
    """

    name: str
    dtype: np.dtype[Any]
    count: int
    chunk: int | None
    dataset: Any

    def read(self, heap: Heap, max_bytes: int) -> NDArray[Any]:
        """Return the elements as they lie in the file, with a REFERENCE for all that is of variable length."""
        dtype = stored_type(self.name, self.dtype)
        needed = self.count * dtype.itemsize
        guard.check_bytes(self.name, needed, max_bytes)
        if needed > heap.size:
            raise InputError(f"declares {self.count} elements, more than the file can hold", field=self.name)
        out = np.empty(self.count, dtype)
        for first, rows, at in self._pieces(dtype.itemsize):
            rows = min(rows, self.count - first)
            out[first : first + rows] = heap.plain_array(self.name, dtype, rows, at)
        return out

    def _pieces(self, itemsize: int) -> list[tuple[int, int, int]]:
        """Return (first element, how many, where in the file) for all that was written, which must be everything."""
        if self.chunk is None:
            with guard.library(self.name):
                offset = self.dataset.id.get_offset()
            if offset is None and self.count:
                raise InputError(f"declares {self.count} elements, but none was written", field=self.name)
            return [(0, self.count, offset)] if self.count else []
        stored: list[Any] = []
        with guard.library(self.name):
            self.dataset.id.chunk_iter(stored.append)
        pieces = [(one.chunk_offset[0], self.chunk, one.byte_offset) for one in stored]
        pieces = [piece for piece in pieces if piece[0] < self.count]
        missing = set(range(0, self.count, self.chunk)) - {first for first, _, _ in pieces}
        if missing or any(one.size != self.chunk * itemsize for one in stored):
            raise InputError(f"declares {self.count} elements, but not all were written", field=self.name)
        return pieces


def find_records(file: Any, name: str) -> Records | None:
    """Return the elements of the dataset at a path inside the file, or None; they must lie there as usually stored."""
    import h5py

    node = hdf5.find_dataset(file, name)
    if node is None:
        return None
    with guard.library(name):
        shape, dtype, chunks = node.shape, node.dtype, node.chunks
        plan, base = node.id.get_create_plist(), file.id.get_create_plist()
        usual = not plan.get_nfilters() and plan.get_layout() in (h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS)
        addresses = not base.get_userblock() and base.get_sizes()[0] == 8
    if shape is None or len(shape) != 1:
        raise InputError("expected a dataset of one axis", field=name)
    if not usual:
        raise InputError("expected data of variable length as it is usually stored, without compression", field=name)
    if not addresses:
        raise InputError("expected an HDF5 file without a user block and with addresses of 8 bytes", field=name)
    return Records(name, dtype, shape[0], None if chunks is None else chunks[0], node)


def stored_type(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the bytes on disk for a type that h5py reports."""
    import h5py

    string = h5py.check_string_dtype(dtype)
    if h5py.check_vlen_dtype(dtype) is not None or (string is not None and string.length is None):
        return REFERENCE
    if dtype.hasobject and dtype.names is None:
        raise InputError(f"expected numbers, or numbers of variable length, got {dtype}", field=name)
    if dtype.names is None:
        return dtype
    fields = [dtype.fields[key] for key in dtype.names]  # type: ignore[index]
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [stored_type(name, field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
        }
    )
