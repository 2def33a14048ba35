"""The door for files: a scan comes in by what its content is, a reconstruction goes out by its suffix.

One file a format. To be read, a module offers what :class:`~upmri.formats.source.Reader` names and is listed in
``_READERS``; to be written, its functions are listed in ``_WRITERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import (
    array,
    atomic,
    bart,
    cfl,
    cmrxrecon,
    dicom,
    fastmri,
    guard,
    images,
    mrd,
    native,
    nifti,
    png,
    twix,
)
from upmri.formats.guard import MAX_BYTES
from upmri.formats.source import Reader, Slices, Source

__all__ = [
    "MAX_BYTES",
    "Slices",
    "Source",
    "check_target",
    "load",
    "load_images",
    "load_reconstruction",
    "open_source",
    "save",
    "suffixes",
]

Writer = Callable[[Reconstruction, Path], None]


def _write_npy(rec: Reconstruction, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, rec.image.numpy())


_READERS: tuple[Reader, ...] = (array, native, cmrxrecon, fastmri, mrd, twix, bart)

# What each suffix writes for magnitudes and for complex images; None where the format knows only the other.
_WRITERS: dict[str, tuple[Writer | None, Writer | None]] = {
    ".nii.gz": (nifti.write_magnitude, nifti.write_complex),
    ".nii": (nifti.write_magnitude, nifti.write_complex),
    ".h5": (None, native.write_reconstruction),
    ".npy": (None, _write_npy),
    ".cfl": (None, cfl.write),
    ".png": (png.write, None),
    ".dcm": (dicom.write, None),
}

# Which of them are folders, and how to tell a file that UPMRI wrote in one.
_FOLDERS: dict[str, atomic.Ours] = {".dcm": dicom.is_ours}


def load(path: str | Path, slices: Slices = None, *, max_bytes: int = MAX_BYTES) -> Scan:
    """Read a scan from a file of any supported format, recognised by its content.

    Parameters
    ----------
    path
        The file.
    slices
        Which slices to read, all when None: an index, a ``slice``, or text such as "3", "3:7", "-4:" or "::2". The
        others are not read from disk.
    max_bytes
        Memory it may take; more is refused before it is asked for.
    """
    with open_source(path, max_bytes=max_bytes) as source:
        return source.read(slices)


def open_source(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Source:
    """Open a scan without reading it, to learn its size or to take it slice by slice.

    >>> with upmri.formats.open_source("scan.h5") as source:  # doctest: +SKIP
    ...     for index in range(source.slices):
    ...         scan = source.read(index)
    """
    path = Path(path)
    with guard.naming(path):
        head = guard.head(path)
        for reader in _READERS:
            if reader.recognise(path, head):
                return reader.open_source(path, max_bytes)
        raise InputError(f"not a kind of file that is known; expected {' or '.join(r.READS for r in _READERS)}")


def load_reconstruction(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Reconstruction:
    """Read a reconstruction that was saved as .h5."""
    path = Path(path)
    with guard.naming(path):
        guard.head(path)
        if not guard.is_hdf5(path):
            raise InputError("expected a reconstruction that UPMRI saved as .h5")
        return native.read_reconstruction(path, max_bytes)


def load_images(path: str | Path, *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read images, magnitude or complex, as (slice, row, column), from .npy or NIfTI, recognised by content."""
    path = Path(path)
    with guard.naming(path):
        return images.read(path, max_bytes)


def save(
    rec: Reconstruction,
    path: str | Path,
    *,
    overwrite: bool = False,
    complex: bool = False,  # noqa: A002
) -> Path:
    """Write a reconstruction in the format its suffix names, whole or not at all.

    Parameters
    ----------
    rec
        The reconstruction. Only .h5 keeps all of it; the others keep the image, NIfTI and DICOM also its deviations.
    path
        Where to; see :func:`suffixes`.
    overwrite
        Replace a file that is there already, which is otherwise an error; a folder only if UPMRI wrote all in it.
    complex
        Keep the phase in NIfTI, which has magnitudes by default; .h5, .npy and .cfl keep it always, .png and
        .dcm never.
    """
    path = Path(path)
    write, ours = _writer(path, complex)
    with atomic.staged(path, overwrite=overwrite, ours=ours) as stage:
        write(rec, stage)
    return path


def check_target(
    path: str | Path,
    *,
    overwrite: bool = False,
    complex: bool = False,  # noqa: A002
    deviations: bool = False,
) -> None:
    """Tell before a long reconstruction, of one image or with ``deviations``, what :func:`save` would say after it."""
    path = Path(path)
    write, ours = _writer(path, complex)
    atomic.check(path, overwrite=overwrite, ours=ours)
    if deviations and write is dicom.write:
        dicom.find_highdicom()
    elif deviations and write in (nifti.write_magnitude, nifti.write_complex):
        atomic.check(nifti.beside(path), overwrite=overwrite)


def _writer(path: Path, complex: bool) -> tuple[Writer, atomic.Ours | None]:  # noqa: A002
    suffix = next((known for known in _WRITERS if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise InputError(f"{path}: expected a name that ends in {', '.join(_WRITERS)}")
    magnitude, phased = _WRITERS[suffix]
    writer = phased if complex else magnitude or phased
    if writer is None:
        raise InputError(f"{path}: {suffix} holds magnitudes only; expected another suffix for complex images")
    return writer, _FOLDERS.get(suffix)


def suffixes() -> tuple[str, ...]:
    """Return the suffixes that :func:`save` knows."""
    return tuple(_WRITERS)
