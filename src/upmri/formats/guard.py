"""Protection against damaged and hostile files, shared by all formats.

No file makes the program allocate more memory than its limit: every size that a header declares is checked before it is
used. What a library raises on a damaged file becomes an :class:`InputError` in :func:`library`, around the call of the
library and nothing else, so that errors of UPMRI itself are not taken for a damaged file. NumPy's files are handled in
:mod:`upmri.formats.npy`, HDF5 in :mod:`upmri.formats.hdf5`.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.regular import open_regular


def _half_of_free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 8 * 2**30  # not Linux
    return kib * 1024 // 2


MAX_BYTES = _half_of_free_memory()
HEAD = 2**16  # no header is longer than this
INFLATION = 1032  # bytes that one byte of a deflate stream can at most become
# The most that is declared per byte stored, for what is not small: no scan compresses like that, a zip bomb does.
_FOLD, _SMALL = 64, 2**20

# What h5py, numpy, zipfile, gzip, nibabel and ElementTree raise on a damaged file.
_DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what goes wrong with it: an InputError of one line.

    Only an :class:`InputError`, a failure of the disk and a lack of memory are about the file. Every other error is one
    of the program and passes through.
    """
    try:
        yield
    except InputError as error:
        raise _one_line(error.within(path=path)) from error
    except MemoryError as error:
        raise _one_line(
            InputError("too large for the memory of this machine; read fewer slices at a time", path=path)
        ) from error
    except OSError as error:
        raise _one_line(InputError(f"cannot be read: {error.strerror or error}", path=path)) from error


@contextmanager
def library(field: str | None = None, *also: type[Exception]) -> Iterator[None]:
    """Turn what a library raises on a damaged file into an InputError.

    Only the call of the library belongs inside: an error of UPMRI's own code must not look like a damaged file.

    Parameters
    ----------
    field
        Name of the part of the file that is being read, if it is known.
    also
        Exceptions of the library beside those of Python, which are covered.
    """
    try:
        yield
    except InputError:
        raise
    except _DAMAGE + also as error:
        raise InputError(f"damaged, or not what it seems to be ({error})", field=field) from error


def _one_line(error: InputError) -> InputError:
    """Return the error without line breaks, which a file can bring in by the names and texts it holds."""
    parts = (error.message, error.field, error.path)
    message, field, path = (part and " ".join(part.splitlines()) for part in parts)
    return InputError(message or "", field=field, path=path)


def check_bytes(field: str, count: int, max_bytes: int) -> None:
    """Refuse what would take more memory than allowed."""
    if count > max_bytes:
        raise InputError(
            f"{count / 2**30:.3g} GiB, more than the limit of {max_bytes / 2**30:.3g} GiB; "
            "read fewer slices at a time or raise the limit",
            field=field,
        )


def check_fold(field: str, declared: int, stored: int) -> None:
    """Refuse what declares far more bytes than are stored."""
    if declared > max(_SMALL, _FOLD * stored):
        raise InputError(
            f"declares {declared} bytes, more than {_FOLD} times the {stored} that are stored", field=field
        )


def single(stored: NDArray[Any], dtype: type[np.inexact[Any]] = np.complex64) -> NDArray[Any]:
    """Return an array in single precision; what is too large becomes infinite, which a Scan refuses."""
    with np.errstate(over="ignore"):
        return stored.astype(dtype, copy=False)


def head(path: Path) -> bytes:
    """Return the first bytes of a regular file that exists, can be read and is not empty."""
    try:
        with open_regular(path) as file:
            first = file.read(HEAD)
    except FileNotFoundError as error:
        raise InputError("no such file") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from error
    except InputError:
        raise
    except ValueError as error:  # a name with a null character
        raise InputError(f"expected the name of a file ({error})") from error
    if not first:
        raise InputError("the file is empty")
    return first
