"""HDF5, of which every byte that is read lies in the file itself and is no more than the file declares.

h5py is called here, in :mod:`upmri.formats.heap` (data of variable length) and in :mod:`upmri.formats.text`, and its
calls are inside :func:`upmri.formats.guard.library`. No link is followed out of the file.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard, hdf5_filters
from upmri.formats.source import Source

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HOPS = 16
_GROUPS = 64
# The most bytes of chunks per byte of the array, for what is not small: chunks that extend beyond its edges.
_CHUNKS_FOLD, _CHUNKS_SMALL = 64, 2**26
# The most chunks of an array, and for large arrays the fewest bytes of one: each costs as much as a hundred numbers.
_CHUNKS_MOST, _CHUNK_BYTES = 2**17, 2**10


class Hdf5Source(Source):
    """A scan in an HDF5 file, which stays open until :meth:`close`; a format says in :meth:`_open` what is in it."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._file = open_hdf5(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _open(self) -> None:
        """Find the arrays of ``self._file``, and fill in what a :class:`Source` declares."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class StoredArray:
    """An array of an HDF5 file, found and checked but not yet read.

    ``name`` is its path inside the file, ``chunks`` the shape of a chunk, None where it is stored in one piece.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    filters: tuple[int, ...]
    dataset: Any

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"

    @property
    def nbytes(self) -> int:
        """Size in bytes as the shape declares it; any size, no overflow."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, *part: int | slice, max_bytes: int) -> NDArray[Any]:
        """Read all of it, or a part: numbers and ranges (start:stop:step, all ≥ 0) along its first axes.

        What the part takes in memory is checked before, and so is the length of every chunk that belongs to it.
        """
        kept = [range(at.start, at.stop, at.step) if isinstance(at, slice) else range(at, at + 1) for at in part]
        kept += [range(length) for length in self.shape[len(part) :]]
        guard.check_bytes(self.name, math.prod(map(len, kept)) * self.dtype.itemsize, max_bytes)
        if self.chunks is None:
            with guard.library(self.name):
                return self.dataset[part or ()]
        whole = self._read_chunks(self.chunks, kept, max_bytes)
        numbers = [axis for axis, at in enumerate(part) if not isinstance(at, slice)]
        return whole.reshape([len(at) for axis, at in enumerate(kept) if axis not in numbers])

    def _read_chunks(self, shape: tuple[int, ...], kept: list[range], max_bytes: int) -> NDArray[Any]:
        """Put the array together from its chunks, which are stored whole also where they extend beyond its edge."""
        size = math.prod(shape) * self.dtype.itemsize
        guard.check_bytes(f"{self.name}: one chunk", size, max_bytes)
        count = math.prod(-(-n // step) for n, step in zip(self.shape, shape, strict=True))
        if count * size > max(_CHUNKS_SMALL, _CHUNKS_FOLD * self.nbytes):  # all of it is decoded, for a few elements
            raise InputError(f"{count * size} bytes of chunks for an array of {self.nbytes}", field=self.name)
        if count > max(_CHUNKS_MOST, self.nbytes // _CHUNK_BYTES):
            raise InputError(f"{count} chunks, of {size} bytes each, are too many", field=self.name)
        out = np.empty([len(at) for at in kept], self.dtype)
        if not out.size:
            return out
        spans = [range(at[0] // length * length, at[-1] + 1, length) for at, length in zip(kept, shape, strict=True)]
        for first in itertools.product(*spans):
            inside = [_inside(at, *ends) for at, ends in zip(kept, zip(first, shape, strict=True), strict=True)]
            source, target = (tuple(slices) for slices in zip(*inside, strict=True))
            if not out[target].size:
                continue
            stored = self._stored_chunks.get(first)
            if stored is None:  # never written
                with guard.library(self.name):
                    out[target] = self.dataset.fillvalue
            else:
                out[target] = self._read_chunk(first, *stored, size).reshape(shape)[source]
        return out

    @cached_property
    def _stored_chunks(self) -> dict[tuple[int, ...], tuple[int, int]]:
        """The chunks that were written, by offset in the array: mask of filters not applied, stored length."""
        chunks: list[Any] = []
        with guard.library(self.name):
            self.dataset.id.chunk_iter(chunks.append)
        found = {tuple(chunk.chunk_offset): (chunk.filter_mask, chunk.size) for chunk in chunks}
        if len(found) < len(chunks):
            raise InputError("damaged: two chunks lie in the same place", field=self.name)
        return found

    def _read_chunk(self, first: tuple[int, ...], mask: int, stored: int, size: int) -> NDArray[Any]:
        """Return the elements of a chunk, in one axis; its stored length is checked before memory is taken."""
        used = tuple(number for at, number in enumerate(self.filters) if not mask >> at & 1)
        # Without filters the HDF5 library takes memory for the declared length, and writes as much there as is stored.
        fits = 0 < stored <= hdf5_filters.longest_chunk(size) if self.filters else stored == size
        if not fits:
            raise InputError(f"damaged: a chunk of {size} bytes is stored in {stored}", field=self.name)
        with guard.library(self.name):
            _, raw = self.dataset.id.read_direct_chunk(first)
        data = hdf5_filters.decode_chunk(self.name, raw, used, size, self.dtype.itemsize)
        return np.frombuffer(data, self.dtype)


def _inside(kept: range, first: int, length: int) -> tuple[slice, slice]:
    """Return where elements of a range lie in a chunk of ``length`` elements from ``first`` on, and in the range."""
    low, high = (max(0, -((kept.start - at) // kept.step)) for at in (first, first + length))
    low, high = (min(number, len(kept)) for number in (low, high))
    begin = kept.start + low * kept.step - first
    return slice(begin, begin + (high - low - 1) * kept.step + 1 if high > low else begin, kept.step), slice(low, high)


# --- files ------------------------------------------------------------------------------------------------------------


def is_hdf5(path: Path) -> bool:
    """Return whether the file has the signature of HDF5 where it may be: at 0, 512, 1024, 2048 and so on."""
    size, offset = path.stat().st_size, 0
    with path.open("rb") as file:
        while offset < size:
            file.seek(offset)
            if file.read(len(_SIGNATURE)) == _SIGNATURE:
                return True
            offset = 2 * offset or 512
    return False


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading: an ``h5py.File``, to be used with the functions of this module."""
    import h5py

    with guard.library():
        return h5py.File(path, "r", locking="best-effort")


def matches(path: Path, test: Callable[[Any], bool]) -> bool:
    """Return whether a file is HDF5 and, opened, passes the test."""
    if not is_hdf5(path):
        return False
    with open_hdf5(path) as file:
        return test(file)


# --- what is in them --------------------------------------------------------------------------------------------------


def has_link(file: Any, name: str) -> bool:
    """Return whether the root of the file has an entry of this name, wherever it leads."""
    with guard.library(name):
        return bool(file.id.links.exists(name.encode()))


def has_attribute(node: Any, name: str) -> bool:
    """Return whether a file, group or dataset has an attribute of this name."""
    with guard.library(name):
        return name in node.attrs


def groups_with(file: Any, *parts: str) -> list[str]:
    """Return the names of the groups in the root of the file that hold all these parts; the first 64 entries count."""
    from h5py import Group, h5l

    found = []
    with guard.library():
        root = file["/"]
        for name in itertools.islice(root.id, _GROUPS):
            if root.id.links.get_info(name).type == h5l.TYPE_HARD:  # others could lead to another file
                node = root[name]
                if isinstance(node, Group) and all(node.id.links.exists(part.encode()) for part in parts):
                    found.append(name.decode(errors="replace"))
    return found


def names(path: Path, most: int = 8) -> list[str]:
    """Return the names of the first entries of a file."""
    with open_hdf5(path) as file, guard.library():
        return [name.decode(errors="replace") for name in itertools.islice(file["/"].id, most)]


def short_attribute(node: Any, name: str) -> Any | None:
    """Return a small attribute of fixed size, or None; a damaged one of variable length can keep HDF5 busy for ever."""
    if not has_attribute(node, name):
        return None
    with guard.library(name):
        declared = node.attrs.get_id(name)
        shape, dtype = declared.shape, declared.dtype
    if shape is None or dtype.hasobject or math.prod(shape) * dtype.itemsize > guard.HEAD:
        raise InputError(f"expected a short attribute of fixed length, got {dtype} {shape}", field=name)
    with guard.library(name):
        return node.attrs[name]


def find_array(file: Any, name: str) -> StoredArray | None:
    """Return the array at a path inside the file, or None where there is none; its bytes must all lie in this file."""
    node = find_dataset(file, name)
    if node is None:
        return None
    with guard.library(name):
        plan = node.id.get_create_plist()
        filters = tuple(plan.get_filter(i)[0] for i in range(plan.get_nfilters()))
        shape, dtype, chunks, stored = node.shape, node.dtype, node.chunks, node.id.get_storage_size()
    hdf5_filters.check_filters(name, filters)
    if shape is None or dtype.hasobject or not _is_stored_as(name, node):
        raise InputError(f"expected an array of numbers, got {dtype}", field=name)
    array = StoredArray(name, shape, dtype, chunks, filters, node)
    guard.check_fold(name, array.nbytes, stored)
    if chunks is None and stored not in (0, array.nbytes):
        raise InputError(f"damaged: {array.nbytes} bytes are stored in {stored}", field=name)
    return array


def _is_stored_as(name: str, node: Any) -> bool:
    """Return whether the elements in the file have the bytes of the NumPy type that h5py reports."""
    from h5py import h5t

    with guard.library(name):
        kind, dtype = node.id.get_type(), node.dtype
        if isinstance(kind, h5t.TypeStringID):
            return bool(kind.get_size() == dtype.itemsize)
        if dtype.kind == "c" and kind.get_class() != h5t.COMPOUND:  # the complex type of HDF5 2.0
            kind, dtype = kind.get_super(), np.zeros((), dtype).real.dtype
        return bool(kind == h5t.py_create(dtype, logical=True))


def find_dataset(file: Any, name: str) -> Any | None:
    """Return the ``h5py.Dataset`` at a path inside the file, or None where there is none."""
    import h5py

    node = _find(file, name)
    if node is None:
        return None
    if not isinstance(node, h5py.Dataset):
        raise InputError(f"expected a dataset, got a {type(node).__name__.lower()}", field=name)
    with guard.library(name):
        plan = node.id.get_create_plist()
        elsewhere = plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count()
    if elsewhere:
        raise InputError("its data lies in another file, which is not followed; expected it in this one", field=name)
    return node


def _find(file: Any, name: str) -> Any | None:
    """Follow a path link by link, because h5py would follow a link out of the file without a warning."""
    from h5py import Group, h5l

    parts, hops = name.split("/"), 0
    with guard.library(name):
        node = file["/"]
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if not isinstance(node, Group) or not node.id.links.exists(part.encode()):
                return None
            kind = node.id.links.get_info(part.encode()).type
            if kind == h5l.TYPE_HARD:
                node = node[part]
            elif kind == h5l.TYPE_SOFT and hops < _HOPS:
                target = node.id.links.get_val(part.encode()).decode()
                node, parts, hops = (file["/"] if target.startswith("/") else node), target.split("/") + parts, hops + 1
            else:
                raise InputError("leads to another file, or in circles; expected it in this one", field=name)
    return node
