"""Reading of scans, recognised by their content, and writing of reconstructions, by their suffix.

There is one file per format. :func:`register` adds further ones; :class:`~upmri.formats.source.Reader` says what a
format needs to be read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from upmri.core import fork_server
from upmri.core.errors import InputError
from upmri.core.geometry import Spacing
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import atomic, guard, images, reading, registry
from upmri.formats.child import remote
from upmri.formats.file_names import find_pair
from upmri.formats.guard import MAX_BYTES
from upmri.formats.map_files import check_maps_target, load_maps, save_maps
from upmri.formats.registry import Writer, register
from upmri.formats.source import Reader, SliceSelection, Source
from upmri.physics.frames import of_slices

__all__ = [
    "MAX_BYTES",
    "Reader",
    "SliceSelection",
    "Source",
    "Writer",
    "check_maps_target",
    "check_target",
    "load",
    "load_images",
    "load_images_with_spacing",
    "load_maps",
    "load_reconstruction",
    "open_source",
    "register",
    "save",
    "save_maps",
    "suffixes",
]


def load(
    path: str | Path, slices: SliceSelection = None, axes: str | None = None, *, max_bytes: int = MAX_BYTES
) -> Scan:
    """Read a scan from a file of any supported format, recognised by its content.

    Parameters
    ----------
    path
        Name of the file.
    slices
        Which slices to read, all when None: an index, a ``slice``, or text such as "3", "3:7", "-4:" or "::2". The
        others are not read from disk.
    axes
        Names of the axes of an array (.npy, .cfl, or ``kspace`` of an HDF5 file) in its own order, when it has another
        order than the usual one: "coil,readout,phase,partition" is a volume, which is transformed along its readout and
        becomes slices (phase, partition). Further names: slice, frame, echo, repetition, contrast, set.
    max_bytes
        Most bytes of memory for the scan; a larger one is refused before memory is allocated.

    Examples
    --------
    >>> import numpy as np, upmri
    >>> np.save("scan.npy", np.ones((2, 4, 32, 24), np.complex64))
    >>> upmri.load("scan.npy").kspace.shape
    torch.Size([2, 4, 32, 24])
    >>> len(upmri.load("scan.npy", slices="1:"))
    1
    >>> np.save("volume.npy", np.ones((4, 10, 32, 24), np.complex64))
    >>> upmri.load("volume.npy", axes="coil,readout,phase,partition").kspace.shape
    torch.Size([10, 4, 32, 24])
    """
    with open_source(path, axes=axes, max_bytes=max_bytes) as source:
        scan = source.read(slices)
        meta = of_slices(scan.meta, source.slices, source.indices(slices))
        return scan if meta is scan.meta else replace(scan, meta=meta)


def open_source(path: str | Path, *, axes: str | None = None, max_bytes: int = MAX_BYTES) -> Source:
    """Open a scan without reading it, to find out its size or to read it slice by slice; ``axes`` as of :func:`load`.

    >>> with upmri.formats.open_source("scan.h5") as source:  # doctest: +SKIP
    ...     for index in range(source.slices):
    ...         scan = source.read(index)
    """
    path = find_pair(Path(path))
    if not fork_server.wanted():
        return reading.open_here(path, max_bytes, axes=axes)
    with guard.naming(path):
        head = guard.head(path)
        own = registry.registered() if axes is None else ()
        for reader in own:  # code of the program itself, which a child does not have
            if reader.recognise(path, head):
                return reader.open_source(path, max_bytes)
        return remote.RemoteSource(path, max_bytes, [reader.READS for reader in own], axes)


def load_reconstruction(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Reconstruction:
    """Read a reconstruction that was saved as .h5."""
    path = Path(path)
    if not fork_server.wanted():
        return reading.read_reconstruction_here(path, max_bytes)
    with guard.naming(path):
        guard.head(path)
        return remote.reconstruction_from_child(path, max_bytes)


def load_images(path: str | Path, *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read images, magnitude or complex, as (slice, row, column), from .npy or NIfTI, recognised by content."""
    return load_images_with_spacing(path, max_bytes=max_bytes)[0]


def load_images_with_spacing(path: str | Path, *, max_bytes: int = MAX_BYTES) -> tuple[NDArray[Any], Spacing | None]:
    """Read images as :func:`load_images` does, and the size of their voxels in mm along (row, column, slice).

    The size is None where the file does not say it, as .npy.
    """
    path = Path(path)
    with guard.naming(path):
        guard.head(path)
        return (remote.images_from_child if fork_server.wanted() else images.read_images)(path, max_bytes)


def save(
    rec: Reconstruction,
    path: str | Path,
    *,
    overwrite: bool = False,
    complex: bool = False,  # noqa: A002
) -> Path:
    """Write a reconstruction in the format that its suffix names, completely or not at all.

    Parameters
    ----------
    rec
        Reconstruction to write. Only .h5 keeps all of it; the others keep the image, NIfTI and DICOM also its standard
        deviations.
    path
        Name of the file, or for .dcm of the folder; :func:`suffixes` lists the known ends.
    overwrite
        Whether an existing file is replaced, which is otherwise an error; a folder only if UPMRI wrote all in it. An
        image without standard deviations replaces those beside it, too: the file, if UPMRI wrote it, is removed.
    complex
        Whether NIfTI keeps the phase; .h5, .npy and .cfl keep it always, .png and .dcm never.
    """
    path = Path(path)
    write, ours = _writer(path, complex)
    earlier = None if rec.std is not None else _earlier_std(path, overwrite)
    with atomic.staged(path, overwrite=overwrite, ours=ours) as stage:
        write(rec, stage)
    if earlier is not None:
        with atomic.failures(earlier):
            earlier.unlink(missing_ok=True)
    return path


def check_target(
    path: str | Path,
    *,
    overwrite: bool = False,
    complex: bool = False,  # noqa: A002
    deviations: bool = False,
) -> None:
    """Check before a long reconstruction that :func:`save` could write it; ``deviations``: with standard deviations."""
    path = Path(path)
    _, ours = _writer(path, complex)
    atomic.check_writable(path, overwrite=overwrite, ours=ours)
    _, kind = registry.written_format(path)
    if deviations and kind.check_std is not None:
        kind.check_std()
    if deviations and kind.std_path is not None:
        atomic.check_writable(kind.std_path(path), overwrite=overwrite)
    if not deviations:
        _earlier_std(path, overwrite)


def _earlier_std(path: Path, overwrite: bool) -> Path | None:
    """Return the deviations of the image that is replaced, which are removed: they are not those of the new one."""
    _, kind = registry.written_format(path)
    return kind.earlier_std(path) if overwrite and kind.earlier_std is not None else None


def _writer(path: Path, complex: bool) -> tuple[Writer, atomic.Ours | None]:  # noqa: A002
    suffix, kind = registry.written_format(path)
    writer = kind.complex if complex else kind.magnitude or kind.complex
    if writer is None:
        raise InputError(f"{suffix} holds magnitudes only; expected another suffix for complex images", path=path)
    return writer, kind.ours


def suffixes() -> tuple[str, ...]:
    """Return the suffixes that :func:`save` knows."""
    return tuple(registry.written_formats())
