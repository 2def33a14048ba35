"""The formats that are known: those of UPMRI, those a program registers, and those of installed packages.

A package offers formats through the entry-point group ``upmri.formats``. An entry point names a reader, or a function
without arguments that calls :func:`register`. They are loaded on the first file that no other reader recognises, or
when the suffixes for writing are listed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
from upmri.formats import (
    array,
    atomic,
    bart,
    calgary,
    cfl,
    cmrxrecon,
    dicom,
    dicom_map,
    fastmri,
    m4raw,
    mrd,
    native,
    nifti,
    png,
    skmtea,
    twix,
)
from upmri.formats.source import Reader

GROUP = "upmri.formats"
Writer = Callable[[Reconstruction, Path], None]


@dataclass(frozen=True)
class WrittenFormat:
    """A format that reconstructions are written in.

    Parameters
    ----------
    magnitude, complex
        Writers of magnitudes and of complex images; None where the format has only the other.
    ours
        Given when the format is a folder: whether UPMRI wrote a file that is in it.
    deviations
        Whether standard deviations are written, too.
    std_path
        Function of a path that returns the file of standard deviations beside it; None where they are in the file
        itself.
    check_std
        Function that refuses standard deviations which could not be written, before a long reconstruction.
    earlier_std
        Function of a path that returns the file beside it with the standard deviations of an image that is replaced,
        which is removed if the new image has none; it refuses a file that UPMRI did not write.
    """

    magnitude: Writer | None
    complex: Writer | None
    ours: atomic.Ours | None = None
    deviations: bool = False
    std_path: Callable[[Path], Path] | None = None
    check_std: Callable[[], object] | None = None
    earlier_std: Callable[[Path], Path | None] | None = None


def _write_npy(rec: Reconstruction, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, rec.image.numpy())


_NIFTI = WrittenFormat(
    nifti.write_magnitude, nifti.write_complex,
    deviations=True, std_path=nifti.std_path, earlier_std=nifti.earlier_deviations,
)  # fmt: skip
_OWN_READERS: tuple[Reader, ...] = (array, native, cmrxrecon, calgary, skmtea, m4raw, fastmri, mrd, twix, bart)
_OWN_WRITERS = {
    ".nii.gz": _NIFTI,
    ".nii": _NIFTI,
    ".h5": WrittenFormat(None, native.write_reconstruction, deviations=True),
    ".npy": WrittenFormat(None, _write_npy),
    ".cfl": WrittenFormat(None, cfl.write),
    ".png": WrittenFormat(png.write, None),
    ".dcm": WrittenFormat(dicom.write, None, dicom.is_ours, deviations=True, check_std=dicom_map.find_highdicom),
}

_registered: list[Reader] = []  # asked before UPMRI's own
_plugged: list[Reader] = []  # of installed packages, asked last
_writers: dict[str, WrittenFormat] = {}
_loading = False


def register(
    reader: Reader | None = None,
    *,
    suffix: str | None = None,
    writer: Writer | None = None,
    complex_writer: Writer | None = None,
) -> None:
    """Add a format: one to read, one to write, or both.

    Parameters
    ----------
    reader
        Module or object with the names of :class:`~upmri.formats.source.Reader`. It is asked before UPMRI's own
        readers, the last registered first. A reader of an installed package is asked after them.
    suffix
        End of the names of files to write, such as ".mha".
    writer, complex_writer
        Functions that write the magnitude, or the complex image, of a reconstruction to a path. What they write appears
        under its final name only when it is complete.

    Examples
    --------
    >>> import numpy as np, upmri
    >>> def write_text(rec, path):
    ...     np.savetxt(path, rec.image[0].abs().numpy())
    >>> upmri.formats.register(suffix=".txt", writer=write_text)
    >>> ".txt" in upmri.formats.suffixes()
    True
    """
    if reader is None and suffix is None:
        raise InputError("expected a reader, or a suffix with its writer, got neither", field="reader")
    if reader is not None:
        missing = [name for name in ("READS", "recognise", "open_source") if not hasattr(reader, name)]
        if missing:
            raise InputError(f"expected READS, recognise and open_source, {missing[0]} is missing", field="reader")
        readers = _plugged if _loading else _registered
        if reader not in readers:
            readers.insert(len(readers) if _loading else 0, reader)
    if (suffix is None) != (writer is None and complex_writer is None):
        raise InputError("expected a suffix together with a writer or complex_writer", field="suffix")
    if suffix is not None:
        if not suffix.startswith(".") or suffix.lower() in _OWN_WRITERS:
            raise InputError(f"expected one that begins with a dot and is not in use, got {suffix!r}", field="suffix")
        _writers[suffix.lower()] = WrittenFormat(writer, complex_writer)


def registered() -> tuple[Reader, ...]:
    """Return the readers that the program registered, in the order in which they are asked."""
    return tuple(_registered)


def readers() -> Iterator[Reader]:
    """Yield all readers in the order in which they are asked; installed packages are loaded when it comes to them."""
    yield from (*_registered, *_OWN_READERS)
    _load_plugins()
    yield from _plugged


def written_formats() -> dict[str, WrittenFormat]:
    """Return the formats that are written, by suffix."""
    _load_plugins()
    return _OWN_WRITERS | _writers


def written_format(path: Path) -> tuple[str, WrittenFormat]:
    """Return the suffix of a path, the longest that is known, and its format."""
    name = path.name.lower()
    for formats in (_OWN_WRITERS | _writers, written_formats()):
        if found := [suffix for suffix in formats if name.endswith(suffix)]:
            suffix = max(found, key=len)
            if suffix == name:  # as of "$NAME.nii.gz" without a NAME: a hidden file
                raise InputError(f"expected a name before {suffix}", path=path)
            return suffix, formats[suffix]
    raise InputError(f"expected a name that ends in {', '.join(written_formats())}", path=path)


def beside(path: Path) -> Path | None:
    """Return the file of standard deviations that is written beside an image, None where the format has none."""
    _, kind = written_format(path)
    return None if kind.std_path is None else kind.std_path(path)


@cache
def _load_plugins() -> None:
    """Load the entry points, once; one that fails is a warning that names it."""
    global _loading
    for entry in metadata.entry_points(group=GROUP):
        _loading = True
        try:
            offered = entry.load()
            if hasattr(offered, "recognise"):
                register(offered)
            else:
                offered()
        except Exception as error:  # code of another package, which can raise anything
            warnings.warn(
                f"the format {entry.name!r} of the package behind {entry.value!r} cannot be used: {error!r}",
                stacklevel=2,
            )
        finally:
            _loading = False
