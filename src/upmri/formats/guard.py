"""What keeps a hostile file out.

No pickle is ever loaded, no file leads to another, and no file makes the program ask for more memory than its limit:
every size that a header declares is checked before it is believed.
"""

from __future__ import annotations

import io
import math
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError


def _half_of_free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 8 * 2**30  # not Linux
    return kib * 1024 // 2


MAX_BYTES = _half_of_free_memory()
HEAD = 2**16  # no header is longer than this
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_GZIP = 1  # HDF5's number for it
_FILTERS = {_GZIP: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
INFLATION = 1032  # bytes that one byte of a deflate stream can at most become
_HOPS = 16
# The most that is declared per byte stored, for what is not small: no scan compresses like that, a bomb does.
_FOLD, _SMALL = 64, 2**20

# What h5py, numpy and zipfile raise on a damaged file, beside InputError.
_DAMAGE = (
    OSError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file into an InputError of one line that names it."""
    try:
        yield
    except InputError as error:
        raise InputError(_line(f"{path}: {error}")) from error
    except MemoryError as error:
        raise InputError(
            _line(f"{path}: too large for the memory of this machine; read fewer slices at a time")
        ) from error
    except _DAMAGE as error:
        raise InputError(_line(f"{path}: damaged, or not what it seems to be ({error})")) from error


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def check_bytes(what: str, count: int, max_bytes: int) -> None:
    """Refuse what would take more memory than allowed."""
    if count > max_bytes:
        raise InputError(
            f"{what}: {count / 2**30:.3g} GiB, more than the limit of {max_bytes / 2**30:.3g} GiB; "
            "read fewer slices at a time or raise the limit"
        )


def check_fold(what: str, declared: int, stored: int) -> None:
    """Refuse what declares far more than is stored."""
    if declared > max(_SMALL, _FOLD * stored):
        raise InputError(f"{what}: declares {declared} bytes, more than {_FOLD} times the {stored} that are stored")


def head(path: Path) -> bytes:
    """Return the first bytes of a regular file that is there, can be read and is not empty."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"expected a file, got {'a folder' if stat.S_ISDIR(mode) else 'a device or pipe'}")
        with path.open("rb") as file:
            first = file.read(HEAD)
    except FileNotFoundError as error:
        raise InputError("no such file") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from error
    if not first:
        raise InputError("the file is empty")
    return first


# --- NumPy ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NpyHeader:
    """What an .npy file says about its array, which begins ``offset`` bytes into it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(what: str, first: bytes, size: int) -> NpyHeader:
    """Parse the header in the first bytes of an .npy file of ``size`` bytes, and check that its array fits in there."""
    stream = io.BytesIO(first[:HEAD])
    parsers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in parsers:
        raise InputError(f"{what}: expected version 1.0 or 2.0 of .npy, got {version[0]}.{version[1]}")
    shape, fortran, dtype = parsers[version](stream)
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise InputError(f"{what}: expected an array of numbers, got {dtype}; pickled objects are never loaded")
    if any(length < 0 for length in shape):
        raise InputError(f"{what}: declares the impossible shape {shape}")
    header = NpyHeader(shape, dtype, fortran, stream.tell())
    if header.offset + header.nbytes > size:
        raise InputError(
            f"{what}: cut short; the header declares {header.nbytes} bytes of {dtype} {shape}, "
            f"there are {size - header.offset}"
        )
    return header


def open_npz(path: Path, max_bytes: int) -> zipfile.ZipFile:
    """Open an .npz file whose every entry is of a kind and size that may be read."""
    archive = zipfile.ZipFile(path)
    try:
        for entry in archive.infolist():
            if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{entry.filename}: expected an entry as numpy.savez writes it")
            check_bytes(entry.filename, entry.file_size, max_bytes)
            check_fold(entry.filename, entry.file_size, entry.compress_size)
    except InputError:
        archive.close()
        raise
    return archive


# --- HDF5 -------------------------------------------------------------------------------------------------------------


def is_hdf5(path: Path) -> bool:
    """Tell whether the file has the signature of HDF5 where it may stand: at 0, 512, 1024, 2048 and so on."""
    size, offset = path.stat().st_size, 0
    with path.open("rb") as file:
        while offset < size:
            file.seek(offset)
            if file.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE:
                return True
            offset = 2 * offset or 512
    return False


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading: an ``h5py.File``, to be looked into by :func:`dataset` and :func:`attribute`."""
    import h5py

    return h5py.File(path, "r", locking="best-effort")


def attribute(node: Any, name: str) -> Any | None:
    """Return a small attribute of fixed size, or None; a damaged one of variable length can keep HDF5 busy for ever."""
    if name not in node.attrs:
        return None
    declared = node.attrs.get_id(name)
    if declared.dtype.hasobject or math.prod(declared.shape) * declared.dtype.itemsize > HEAD:
        raise InputError(f"{name}: expected a short attribute of fixed length, got {declared.dtype} {declared.shape}")
    return node.attrs[name]


def dataset(file: Any, name: str) -> Any | None:
    """Return the ``h5py.Dataset`` at a path inside the file, or None, if its bytes all lie in this file."""
    import h5py

    node = _find(file, name)
    if node is None:
        return None
    if not isinstance(node, h5py.Dataset):
        raise InputError(f"{name}: expected a dataset, got a {type(node).__name__.lower()}")
    plan, filters = node.id.get_create_plist(), _filters(node)
    if plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count():
        raise InputError(f"{name}: its data lies in another file, which is not followed; expected it in this one")
    if len(set(filters)) < len(filters) or not set(filters) <= set(_FILTERS):
        raise InputError(f"{name}: expected no filters but {', '.join(_FILTERS.values())}, got numbers {filters}")
    if node.shape is None or node.dtype.hasobject:
        raise InputError(f"{name}: expected an array of numbers, got {node.dtype}")
    check_fold(name, declared_bytes(node), node.id.get_storage_size())
    return node


def _filters(dataset: Any) -> list[int]:
    plan = dataset.id.get_create_plist()
    return [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]


def _find(file: Any, name: str) -> Any | None:
    """Walk a path link by link, because h5py would follow a link out of the file without a word."""
    from h5py import Group, h5l

    node, parts, hops = file["/"], name.split("/"), 0
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
            raise InputError(f"{name}: leads to another file, or in circles; expected it in this one")
    return node


def declared_bytes(dataset: Any, keep: slice | None = None) -> int:
    """Return the size of a dataset, or of some of its first axis, as its shape declares it; any size, no overflow."""
    rows = dataset.shape[:1] if keep is None else (len(range(keep.start, keep.stop, keep.step)),)
    return int(math.prod(rows + dataset.shape[1:]) * dataset.dtype.itemsize)


def read(dataset: Any, keep: slice | None = None, *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read a dataset, or some of its first axis (start:stop:step, all ≥ 0), when what is declared fits the limit."""
    check_bytes(dataset.name, declared_bytes(dataset, keep), max_bytes)
    if dataset.chunks is not None:
        _check_chunks(dataset, keep, max_bytes)
    array: NDArray[Any] = dataset[()] if keep is None else dataset[keep]
    return array


def read_part(dataset: Any, part: tuple[int | slice, ...], *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read ``dataset[part]``: numbers and ranges (start:stop:step, all ≥ 0) along its first axes."""
    rows = tuple(len(range(at.start, at.stop, at.step)) if isinstance(at, slice) else 1 for at in part)
    count = math.prod(rows + dataset.shape[len(part) :]) * dataset.dtype.itemsize
    check_bytes(f"{dataset.name}: a part", count, max_bytes)
    if dataset.chunks is not None:
        first = part[0] if part else None
        _check_chunks(dataset, slice(first, first + 1, 1) if isinstance(first, int) else first, max_bytes)
    array: NDArray[Any] = dataset[part]
    return array


def _check_chunks(dataset: Any, keep: slice | None, max_bytes: int) -> None:
    """Refuse chunks that become more than the shape declares: HDF5 inflates each to its end and looks afterwards."""
    declared = math.prod(dataset.chunks) * dataset.dtype.itemsize
    check_bytes(f"{dataset.name}: one chunk", declared, max_bytes)
    filters = _filters(dataset)
    if _GZIP not in filters:
        return
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    for chunk in chunks:
        first, skipped = chunk.chunk_offset[0], chunk.filter_mask >> filters.index(_GZIP) & 1
        if skipped or (keep is not None and not (first < keep.stop and keep.start < first + dataset.chunks[0])):
            continue
        too_long = chunk.size > 1.01 * declared + 1024
        if not too_long and chunk.size * INFLATION > max_bytes:
            _, raw = dataset.id.read_direct_chunk(chunk.chunk_offset)
            too_long = _inflates_beyond(raw, declared + 4)  # 4 for a checksum
        if too_long:
            raise InputError(f"{dataset.name}: a compressed chunk holds more than the {declared} bytes it declares")


def _inflates_beyond(raw: bytes, count: int) -> bool:
    inflate, pending, total = zlib.decompressobj(), raw, 0
    while pending and not inflate.eof and total <= count:
        total += len(inflate.decompress(pending, 2**24))
        pending = inflate.unconsumed_tail
    return total > count
