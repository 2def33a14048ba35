"""Images in, to simulate scans of: .npy as ([slice,] row, column), NIfTI as (row, column[, slice[, frame]])."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from upmri.errors import InputError
from upmri.formats import guard

_NPY = b"\x93NUMPY"
_GZIP = b"\x1f\x8b"


def read(path: Path, max_bytes: int) -> NDArray[Any]:
    """Return (slice, row, column), real or complex and finite; the frames of a series lie along the slices."""
    head = guard.head(path)
    image = _npy(path, head, max_bytes) if head.startswith(_NPY) else _nifti(path, head, max_bytes)
    if not np.isfinite(image).all():
        raise InputError("image: expected finite values, found NaN or infinite ones")
    return image


def _npy(path: Path, head: bytes, max_bytes: int) -> NDArray[Any]:
    header = guard.npy_header("image", head, path.stat().st_size)
    if header.dtype.kind not in "buifc" or len(header.shape) not in (2, 3) or 0 in header.shape:
        raise InputError(f"image: expected ([slice,] row, column) of numbers, got {header.dtype} {header.shape}")
    guard.check_bytes("image", header.nbytes, max_bytes)
    image: NDArray[Any] = np.load(path, allow_pickle=False)
    return image.reshape(-1, *image.shape[-2:])


def _nifti(path: Path, head: bytes, max_bytes: int) -> NDArray[Any]:
    import nibabel

    with gzip.open(path) if head.startswith(_GZIP) else path.open("rb") as opened:
        stream = cast(BinaryIO, opened)
        first = stream.read(348)
        kinds = {b"n+1\0": (344, nibabel.Nifti1Image), b"n+2\0": (4, nibabel.Nifti2Image)}
        kind = next((kind for magic, (at, kind) in kinds.items() if first[at : at + 4] == magic), None)
        if kind is None:
            raise InputError("not a kind of image that is known; expected .npy, .nii or .nii.gz")
        stream.seek(0)
        nifti = kind.from_stream(stream)
        shape, dtype = nifti.shape, nifti.get_data_dtype()
        if len(shape) not in (2, 3, 4) or 0 in shape or dtype.kind not in "uifc":
            raise InputError(f"image: expected (row, column[, slice[, frame]]) of numbers, got {dtype} {shape}")
        guard.check_bytes("image", math.prod(shape) * max(8, dtype.itemsize), max_bytes)  # scaled values are float64
        voxels = np.asanyarray(nifti.dataobj)
    volumes = voxels.reshape(*shape[:2], -1, order="F")  # slices run faster than frames
    return np.ascontiguousarray(np.moveaxis(volumes, -1, 0))
