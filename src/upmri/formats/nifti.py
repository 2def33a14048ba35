"""NIfTI writer: voxels as (readout, phase, slice[, frame]), with their size in mm, and their position if it is known.

Frames of a dynamic scan, also echoes or repetitions, are the fourth axis. The position is ``meta["geometry"]``, as
:mod:`upmri.core.geometry` describes it. Without it slices are axial from the origin on, as in DICOM: two exports of one
image show left and right alike. The description then says "geometry unknown", the code of the qform is 0, and that of
the sform 2, coordinates that are not the scanner's: with 0 a reader would ignore it and assume axes of its own.
Deviations go to NAME_std beside NAME.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core import geometry
from upmri.core.errors import InputError
from upmri.core.regular import open_regular
from upmri.core.scan import Reconstruction
from upmri.formats.label import describe

_LONGEST = 32767  # an axis of NIfTI-1
_DESCRIPTION, _DESCRIBED = 79, 148  # characters of the description, and where in the header it begins
_STD = "std of "  # begins the description of deviations
_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])  # DICOM counts to the left and to the back
_UNKNOWN, _SCANNER, _ALIGNED = 0, 1, 2  # NIfTI's codes: no coordinates, those of the scanner, and some others
_ASSUMED = ", geometry unknown"
_METHOD = 25  # characters of the method's name, so that the note has a place beside it


def write_magnitude(rec: Reconstruction, path: Path) -> None:
    """Write |image| as float32, and the deviations beside."""
    _write(rec, rec.image.abs().numpy(), path)
    _write_deviations(rec, path)


def write_complex(rec: Reconstruction, path: Path) -> None:
    """Write the image as complex64, and the deviations beside."""
    _write(rec, rec.image.numpy(), path)
    _write_deviations(rec, path)


def std_path(path: Path) -> Path:
    """Return the name of the file with the standard deviations of an image."""
    stem = re.sub(r"\.nii(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    return path.with_name(f"{stem}_std{path.name[len(stem) :]}")


def earlier_deviations(path: Path) -> Path | None:
    """Return the deviations beside an image that is to be replaced by one without, None if there are none.

    A file of that name that UPMRI did not write is an :class:`InputError`: it would be taken for the deviations.
    """
    beside = std_path(path)
    if not os.path.lexists(beside):
        return None
    if beside.is_symlink() or not _has_deviations(beside):
        raise InputError(
            f"would be taken for the deviations of {path.name}, and is not removed, because UPMRI did not write it; "
            "choose another name",
            path=beside,
        )
    return beside


def _has_deviations(path: Path) -> bool:
    """Return whether UPMRI wrote this file of deviations, by the description in its header."""
    try:
        with open_regular(path) as opened:
            packed = opened.peek(2).startswith(b"\x1f\x8b")  # type: ignore[attr-defined]  # it is a BufferedReader
            with gzip.GzipFile(fileobj=opened) if packed else nullcontext(opened) as header:
                head = header.read(_DESCRIBED + _DESCRIPTION)
    except (OSError, EOFError, InputError, zlib.error):
        return False
    return head[_DESCRIBED:].startswith(f"UPMRI {_STD}".encode())


def _write_deviations(rec: Reconstruction, path: Path) -> None:
    """Write ``rec.std``, if there is one, as float32 to NAME_std with the suffix of the image."""
    if rec.std is not None:
        _write(rec, rec.std.numpy(), std_path(path), what=_STD)


def _write(rec: Reconstruction, image: NDArray[Any], path: Path, what: str = "") -> None:
    """Write (slice, readout, phase), gzipped if the name ends in .gz, the same bytes for the same image."""
    import nibabel

    if max(image.shape) > _LONGEST:
        raise InputError(
            f"NIfTI holds at most {_LONGEST} slices, got {len(image)}; expected .h5 for these", field="image"
        )
    known = geometry.affine(rec.spacing, rec.meta)
    voxels = _voxels(image, rec.meta)
    matrix = _TO_RAS @ (geometry.axial(rec.spacing) if known is None else known)
    nifti = nibabel.Nifti1Image(voxels, matrix)
    nifti.set_sform(matrix, _ALIGNED if known is None else _SCANNER)
    nifti.set_qform(matrix, _UNKNOWN if known is None else _SCANNER)
    nifti.header.set_xyzt_units("mm")
    note = _ASSUMED if known is None else ""
    nifti.header["descrip"] = describe(f"{what}{rec.method[:_METHOD]}{note}", _DESCRIPTION)
    with path.open("wb") as file:
        if path.name.lower().endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
                nifti.to_stream(packed)
        else:
            nifti.to_stream(file)


def _voxels(image: NDArray[Any], meta: dict[str, Any]) -> NDArray[Any]:
    """Return (readout, phase, slice), or (readout, phase, place, frame) if every place has as many frames."""
    from upmri.physics.frames import places

    place_of = places(meta, len(image))
    if place_of is None or len({place_of.count(place) for place in place_of}) > 1:
        return image.transpose(1, 2, 0)
    order = np.argsort(place_of, kind="stable").reshape(max(place_of) + 1, -1)  # (place, frame)
    return image[order].transpose(2, 3, 0, 1)
