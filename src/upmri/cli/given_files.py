"""Files beside the scan that `upmri recon` is given: coil maps, a reference scan, navigators."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from upmri.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from upmri.core.scan import Scan


def read_maps(path: Path | None, limit: int) -> Tensor | None:
    """Read maps once in each process, and again when the file has changed: a worker of a cluster serves many runs."""
    return None if path is None else _read_maps(path, _stamp(path), limit)


def read_scan(path: Path | None, limit: int, axes: str | None = None) -> Scan | None:
    """Read a reference scan, or one without phase encoding, in the same way.

    Names of the axes of the scan beside it are those of this one, too, unless its file says which axis is which, or
    has another number of axes: then it is read as without them.
    """
    return None if path is None else _read_scan(path, _stamp(path), limit, axes)


@lru_cache(maxsize=1)
def _read_maps(path: Path, _: tuple[object, ...], limit: int) -> Tensor:
    from upmri import formats

    return formats.load_maps(path, max_bytes=limit)


@lru_cache(maxsize=2)
def _read_scan(path: Path, _: tuple[object, ...], limit: int, axes: str | None) -> Scan:
    from upmri import formats

    try:
        return formats.load(path, axes=axes, max_bytes=limit)
    except InputError as error:
        if axes is None or error.field != "axes":
            raise
    return formats.load(path, max_bytes=limit)


def _stamp(path: Path) -> tuple[object, ...]:
    """Place, time of the last change and size of a file; the place alone for a name without suffix, as of BART."""
    try:
        found = path.stat()
    except OSError:
        return (path.absolute(),)
    return path.absolute(), found.st_mtime_ns, found.st_size
