"""Reader for images to simulate scans of: .npy as ([slice,] row, column), NIfTI as (row, column[, slice[, frame]]).

An .npz holds the same as .npy does in its array ``image``. NIfTI says the size of its voxels, too.
"""

from __future__ import annotations

import gzip
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from logging import Logger
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.geometry import Spacing
from upmri.formats import guard, npy

_GZIP = b"\x1f\x8b"
_NIFTI_HEADER = 540  # bytes, of NIfTI-2; that of NIfTI-1 is shorter
_EXTENSIONS = 2**26  # the most bytes before the first voxel
_BATCH = 2**20  # bytes of slices that are read together
_MILLIMETRES = {0: 1.0, 1: 1e3, 2: 1.0, 3: 1e-3}  # by NIfTI's code of the unit: unknown, metre, millimetre, micrometre


def read_images(path: Path, max_bytes: int) -> tuple[NDArray[Any], Spacing | None]:
    """Return images, and the size of their voxels in mm along (row, column, slice), if the file says it.

    Images are (slice, row, column), real or complex and finite; the frames of a series lie along the slices.
    """
    head = guard.head(path)
    spacing = None
    if head.startswith(npy.NPY):
        image = _npy(path, head, max_bytes)
    elif head.startswith(npy.ZIP):
        image = _npz(path, max_bytes)
    else:
        image, spacing = _nifti(path, head, max_bytes)
    if image.dtype.kind in "fc" and not np.isfinite(image).all():
        raise InputError("expected finite values, found NaN or infinite ones", field="image")
    return image, spacing


def _npy(path: Path, head: bytes, max_bytes: int) -> NDArray[Any]:
    _check(npy.npy_header("image", head, path.stat().st_size), max_bytes)
    with guard.library("image"):
        image: NDArray[Any] = np.load(path, allow_pickle=False)
    return image.reshape(-1, *image.shape[-2:])


def _npz(path: Path, max_bytes: int) -> NDArray[Any]:
    with npy.open_npz(path, max_bytes) as archive:
        if "image.npy" not in archive.namelist():
            raise InputError('expected an .npz archive with an array "image", there is none', field="image")
        header = npy.npz_header(archive, "image")
        _check(header, max_bytes)
        image = npy.read_npz(archive, header)
    return image.reshape(-1, *image.shape[-2:])


def _check(header: npy.NpyHeader, max_bytes: int) -> None:
    if header.dtype.kind not in "buifc" or len(header.shape) not in (2, 3) or 0 in header.shape:
        raise InputError(
            f"expected ([slice,] row, column) of numbers, got {header.dtype} {header.shape}", field="image"
        )
    guard.check_bytes("image", header.nbytes, max_bytes)


@contextmanager
def _silent(logger: Logger) -> Iterator[None]:
    """Keep nibabel from logging, or warning of, what it corrects in a header."""
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.disabled = before


def _nifti(path: Path, head: bytes, max_bytes: int) -> tuple[NDArray[Any], Spacing | None]:
    """Read some slices at a time, to take no more memory than the image needs; header extensions are skipped."""
    import nibabel
    from nibabel.imageglobals import logger
    from nibabel.spatialimages import HeaderDataError
    from nibabel.volumeutils import apply_read_scaling
    from nibabel.wrapstruct import WrapStructError

    kinds = {(344, b"n+1\0"): nibabel.Nifti1Header, (4, b"n+2\0"): nibabel.Nifti2Header}
    packed = head.startswith(_GZIP)
    with gzip.open(path) if packed else path.open("rb") as opened, _silent(logger):
        stream = cast(BufferedIOBase, opened)
        with guard.library("image"):
            first = stream.read(_NIFTI_HEADER)
        kind = next((kind for (at, magic), kind in kinds.items() if first[at:].startswith(magic)), None)
        if kind is None:
            raise InputError("not a kind of image that is known; expected .npy, .npz, .nii or .nii.gz")
        with guard.library("image", HeaderDataError, WrapStructError):
            header = kind(first[: kind.template_dtype.itemsize])
            shape, dtype, scaling = header.get_data_shape(), header.get_data_dtype(), header.get_slope_inter()
            offset = header.get_data_offset() or header.single_vox_offset
            stored = kind(first[: kind.template_dtype.itemsize], check=False)  # which does not make 1 of a length of 0
            spacing = _spacing(stored["pixdim"][1:4], int(stored["xyzt_units"]))
        if len(shape) not in (2, 3, 4) or min(shape) < 1 or dtype.kind not in "uifc":
            raise InputError(f"expected (row, column[, slice[, frame]]) of numbers, got {dtype} {shape}", field="image")
        if offset > _EXTENSIONS:
            raise InputError(f"{offset} bytes, expected at most {_EXTENSIONS}", field="header extensions")
        voxels = math.prod(shape)
        with guard.library("image"):
            scaled = apply_read_scaling(np.zeros(1, dtype), *scaling).dtype
        guard.check_bytes("image", voxels * scaled.itemsize, max_bytes)
        if offset + voxels * dtype.itemsize > path.stat().st_size * (guard.INFLATION if packed else 1):
            raise InputError(f"cut short; the header declares {dtype} {shape}", field="image")
        rows, columns = shape[:2]
        image = np.empty((math.prod(shape[2:]), rows, columns), scaled)  # slices run faster than frames
        with guard.library("image"):
            stream.seek(offset)
        step = max(1, _BATCH // (rows * columns * dtype.itemsize))
        for part in np.split(image, range(step, len(image), step)):
            count = part.size * dtype.itemsize
            with guard.library("image"):
                raw = stream.read(count)
            if len(raw) < count:
                raise InputError(f"cut short; the header declares {dtype} {shape}", field="image")
            values = np.frombuffer(raw, dtype).reshape(len(part), columns, rows)
            part[:] = apply_read_scaling(values, *scaling).swapaxes(1, 2)
        with guard.library("image"):
            stream.read(1)  # gzip compares the checksum only at the end of the stream
    return image, spacing


def _spacing(lengths: NDArray[Any], units: int) -> Spacing | None:
    """Return three lengths in mm, or None if one of them is missing, or their unit is none of lengths."""
    scale = _MILLIMETRES.get(units & 7)
    # By way of text, so that 0.9 in single precision is 0.9.
    found = tuple(abs(float(str(length))) * scale for length in lengths) if scale is not None else ()
    return found if len(found) == 3 and all(math.isfinite(length) and length > 0 for length in found) else None
