"""HDF5 data of variable length, read without the HDF5 library.

Such data lies in "global heap collections" of the file, and an element of a dataset holds only a reference: length,
address of the collection, index in there. The library follows references blindly, and with damaged ones it can run for
ever or crash the program. So it is asked only where the elements lie; references are followed here, each checked
against the file, at the cost of one pass over the collections that are touched. The format is that of the HDF5 File
Format Specification, section III.E, the same in every version of HDF5.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
_COLLECTION = struct.Struct("<4sB3xQ")  # signature, version, size with this header
_OBJECT = struct.Struct("<HH4xQ")  # index, references to it, size without this header
_MOST = 2**16  # objects of a collection: their index has two bytes


class Heap:
    """The bytes of an HDF5 file, mapped for as long as the ``with`` lasts."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = len(self._bytes)
        self._collections: dict[int, dict[int, tuple[int, int]]] = {}
        self._walked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bytes.close()

    def take(self, reference: Any, itemsize: int) -> bytes:
        """Return the bytes that one reference leads to: as many elements of ``itemsize`` as it says."""
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
            raise InputError(f"variable-length data: expected {count} values, found {references['length'].max()}")
        if count == 0:
            return out
        flat = out.reshape(len(references), -1)
        for row, (_, address, index) in zip(flat, references.tolist(), strict=True):
            at = self._find(address, index, count * dtype.itemsize)
            row[:] = np.frombuffer(self._bytes, dtype, count, at)
        return out

    def _find(self, address: int, index: int, count: int) -> int:
        """Return where the ``count`` bytes of an object begin."""
        objects = self._collections.get(address)
        if objects is None:
            objects = self._collections[address] = self._walk(address)
        at, size = objects.get(index, (0, -1))
        if size < count:
            raise InputError(f"variable-length data: a reference leads nowhere (object {index} at {address})")
        return at

    def _walk(self, address: int) -> dict[int, tuple[int, int]]:
        """Return where the objects of a collection begin and how long they are, by index."""
        if address + _COLLECTION.size > self._size:
            raise InputError(f"variable-length data: a reference leads beyond the end of the file (to {address})")
        signature, version, size = _COLLECTION.unpack_from(self._bytes, address)
        end = address + size
        if signature != b"GCOL" or version != 1 or end > self._size:
            raise InputError(f"variable-length data: a reference leads to {address}, where there is none")
        objects: dict[int, tuple[int, int]] = {}
        at = address + _COLLECTION.size
        while at + _OBJECT.size <= end:
            index, _, length = _OBJECT.unpack_from(self._bytes, at)
            at += _OBJECT.size
            if index == 0:  # free space up to the end
                break
            if at + length > end or len(objects) == _MOST:
                raise InputError(f"variable-length data: the collection at {address} is damaged")
            objects[index] = (at, length)
            at += (length + 7) // 8 * 8
            # True collections do not overlap, so that this bounds the work by the size of the file.
            self._walked += _OBJECT.size
            if self._walked > self._size:
                raise InputError("variable-length data: its collections lie upon each other")
        return objects


def dataset(file: Any, name: str) -> Any | None:
    """Return the ``h5py.Dataset`` of one axis at a path inside the file, or None, if its elements lie there plainly."""
    import h5py

    node = guard._find(file, name)
    if node is None:
        return None
    if not isinstance(node, h5py.Dataset) or node.shape is None or len(node.shape) != 1:
        raise InputError(f"{name}: expected a dataset of one axis")
    plan = node.id.get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count():
        raise InputError(f"{name}: its data lies in another file, which is not followed; expected it in this one")
    if plan.get_nfilters() or plan.get_layout() not in (h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS):
        raise InputError(f"{name}: expected data of variable length as it is usually stored, without compression")
    base = file.id.get_create_plist()
    if base.get_userblock() or base.get_sizes()[0] != 8:
        raise InputError(f"{name}: expected an HDF5 file without a user block and with addresses of 8 bytes")
    return node


def elements(dataset: Any, heap: Heap, max_bytes: int) -> NDArray[Any]:
    """Return the elements of a dataset as they lie in the file, with a REFERENCE for all that is of variable length."""
    dtype, count = plain(dataset.dtype), dataset.shape[0]
    needed = count * dtype.itemsize
    guard.check_bytes(dataset.name, needed, max_bytes)
    if needed > heap._size:
        raise InputError(f"{dataset.name}: declares {count} elements, more than the file can hold")
    out = np.empty(count, dtype)
    for first, rows, at in _pieces(dataset, dtype.itemsize):
        rows = min(rows, count - first)
        if at + rows * dtype.itemsize > heap._size:
            raise InputError(f"{dataset.name}: cut short; some of its elements lie beyond the end of the file")
        out[first : first + rows] = np.frombuffer(heap._bytes, dtype, rows, at)
    return out


def _pieces(dataset: Any, itemsize: int) -> Sequence[tuple[int, int, int]]:
    """Return (first element, how many, where in the file) for all that was written, which must be everything."""
    count = dataset.shape[0]
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        if offset is None and count:
            raise InputError(f"{dataset.name}: declares {count} elements, but none was written")
        return [(0, count, offset)] if count else []
    length = dataset.chunks[0]
    stored: list[Any] = []
    dataset.id.chunk_iter(stored.append)
    pieces = [(piece.chunk_offset[0], length, piece.byte_offset) for piece in stored if piece.chunk_offset[0] < count]
    missing = set(range(0, count, length)) - {first for first, _, _ in pieces}
    if missing or any(piece.size != length * itemsize for piece in stored):
        raise InputError(f"{dataset.name}: declares {count} elements, but not all were written")
    return pieces


def plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the bytes on disk for a type that h5py reports."""
    import h5py

    string = h5py.check_string_dtype(dtype)
    if h5py.check_vlen_dtype(dtype) is not None or (string is not None and string.length is None):
        return REFERENCE
    if dtype.hasobject and dtype.names is None:
        raise InputError(f"expected numbers, or numbers of variable length, got {dtype}")
    if dtype.names is None:
        return dtype
    fields = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [plain(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
        }
    )
