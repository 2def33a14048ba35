"""Reader for images to simulate scans of: .npy as ([slice,] row, column), NIfTI as (row, column[, slice[, frame]]).

An .npz holds the same as .npy does in its array ``image``.
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
from upmri.formats import guard, npy

_GZIP = b"\x1f\x8b"


def read_images(path: Path, max_bytes: int) -> NDArray[Any]:
    """Return (slice, row, column), real or complex and finite; the frames of a series lie along the slices."""
    head = guard.head(path)
    if head.startswith(npy.NPY):
        image = _npy(path, head, max_bytes)
    else:
        image = _npz(path, max_bytes) if head.startswith(npy.ZIP) else _nifti(path, head, max_bytes)
    if not np.isfinite(image).all():
        raise InputError("expected finite values, found NaN or infinite ones", field="image")
    return image


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


def _nifti(path: Path, head: bytes, max_bytes: int) -> NDArray[Any]:
    import nibabel
    from nibabel.filebasedimages import ImageFileError
    from nibabel.imageglobals import logger
    from nibabel.spatialimages import HeaderDataError
    from nibabel.wrapstruct import WrapStructError

    kinds = {(344, b"n+1\0"): nibabel.Nifti1Image, (4, b"n+2\0"): nibabel.Nifti2Image}
    packed = head.startswith(_GZIP)
    with gzip.open(path) if packed else path.open("rb") as opened, _silent(logger):
        stream = cast(BufferedIOBase, opened)
        with guard.library("image"):
            first = stream.read(348)
        kind = next((kind for (at, magic), kind in kinds.items() if first[at:].startswith(magic)), None)
        if kind is None:
            raise InputError("not a kind of image that is known; expected .npy, .npz, .nii or .nii.gz")
        with guard.library("image", HeaderDataError, ImageFileError, WrapStructError):
            stream.seek(0)
            nifti = kind.from_stream(stream)
            shape, dtype = nifti.shape, nifti.get_data_dtype()
        if len(shape) not in (2, 3, 4) or min(shape) < 1 or dtype.kind not in "uifc":
            raise InputError(f"expected (row, column[, slice[, frame]]) of numbers, got {dtype} {shape}", field="image")
        voxels = math.prod(shape)
        guard.check_bytes("image", voxels * max(8, dtype.itemsize), max_bytes)  # scaled values are float64
        if voxels * dtype.itemsize > path.stat().st_size * (guard.INFLATION if packed else 1):
            raise InputError(f"cut short; the header declares {dtype} {shape}", field="image")
        with guard.library("image"):
            image = np.asanyarray(nifti.dataobj)
            stream.read(1)  # gzip compares the checksum only at the end of the stream
    volumes = image.reshape(*shape[:2], -1, order="F")  # slices run faster than frames
    return np.ascontiguousarray(np.moveaxis(volumes, -1, 0))
