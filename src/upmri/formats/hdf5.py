"""HDF5, of which every byte that is read lies in the file itself and is no more than the file declares.

h5py is called here, in :mod:`upmri.formats.heap` (data of variable length) and in :mod:`upmri.formats.text`, and its
calls are inside :func:`upmri.formats.guard.library`. No link is followed out of the file.
"""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard
from upmri.formats.source import Source

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_GZIP, _FLETCHER32, _LZF = 1, 3, 32000  # HDF5's numbers of filters
_FILTERS = {_GZIP: "gzip", 2: "shuffle", _FLETCHER32: "fletcher32", _LZF: "lzf"}
_COMPRESSION = {_GZIP, _LZF}
_CHECKSUM = 4  # bytes that fletcher32 appends to a chunk
_HOPS = 16
_GROUPS = 64


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

    @property
    def nbytes(self) -> int:
        """Size in bytes as the shape declares it; any size, no overflow."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, *part: int | slice, max_bytes: int) -> NDArray[Any]:
        """Read all of it, or a part: numbers and ranges (start:stop:step, all ≥ 0) along its first axes.

        What the part takes in memory is checked before, and so is every compressed chunk that belongs to it.
        """
        rows = tuple(len(range(at.start, at.stop, at.step)) if isinstance(at, slice) else 1 for at in part)
        guard.check_bytes(self.name, math.prod(rows + self.shape[len(part) :]) * self.dtype.itemsize, max_bytes)
        if self.chunks is not None:
            first = part[0] if part else slice(0, self.shape[0], 1)
            self._check_chunks(
                self.chunks, first if isinstance(first, slice) else slice(first, first + 1, 1), max_bytes
            )
        with guard.library(self.name):
            array: NDArray[Any] = self.dataset[part or ()]
        return array

    @cached_property
    def _stored_chunks(self) -> list[Any]:
        """The chunks that were written: offset in the array, mask of filters not used, place and size in the file."""
        chunks: list[Any] = []
        with guard.library(self.name):
            self.dataset.id.chunk_iter(chunks.append)
        return chunks

    def _check_chunks(self, shape: tuple[int, ...], keep: slice, max_bytes: int) -> None:
        """Refuse chunks of impossible size: HDF5 inflates them before it checks, and crashes on empty ones."""
        declared = math.prod(shape) * self.dtype.itemsize
        guard.check_bytes(f"{self.name}: one chunk", declared, max_bytes)
        for chunk in self._stored_chunks:
            first = chunk.chunk_offset[0]
            if not (first < keep.stop and keep.start < first + shape[0]):
                continue
            used = {number for at, number in enumerate(self.filters) if not chunk.filter_mask >> at & 1}
            checksum = _CHECKSUM if _FLETCHER32 in used else 0
            if chunk.size <= checksum or (not used & _COMPRESSION and chunk.size != declared + checksum):
                raise InputError(f"damaged: a chunk of {declared} bytes is stored in {chunk.size}", field=self.name)
            too_long = chunk.size > 1.01 * declared + 1024
            if _GZIP in used and not too_long and chunk.size * guard.INFLATION > max_bytes:
                with guard.library(self.name):
                    _, raw = self.dataset.id.read_direct_chunk(chunk.chunk_offset)
                    too_long = _inflates_beyond(raw, declared + _CHECKSUM)
            if too_long:
                raise InputError(
                    f"a compressed chunk holds more than the {declared} bytes it declares", field=self.name
                )


def _inflates_beyond(raw: bytes, count: int) -> bool:
    inflate, pending, total = zlib.decompressobj(), raw, 0
    while pending and not inflate.eof and total <= count:
        total += len(inflate.decompress(pending, 2**24))
        pending = inflate.unconsumed_tail
    return total > count


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
        for name in islice(root.id, _GROUPS):
            if root.id.links.get_info(name).type == h5l.TYPE_HARD:  # others could lead to another file
                node = root[name]
                if isinstance(node, Group) and all(node.id.links.exists(part.encode()) for part in parts):
                    found.append(name.decode(errors="replace"))
    return found


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
    if len(set(filters)) < len(filters) or not set(filters) <= set(_FILTERS):
        raise InputError(f"expected no filters but {', '.join(_FILTERS.values())}, got {list(filters)}", field=name)
    if shape is None or dtype.hasobject:
        raise InputError(f"expected an array of numbers, got {dtype}", field=name)
    array = StoredArray(name, shape, dtype, chunks, filters, node)
    guard.check_fold(name, array.nbytes, stored)
    return array


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
