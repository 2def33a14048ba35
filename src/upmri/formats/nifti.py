"""NIfTI out: voxels as (readout, phase, slice), with their size in mm."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.errors import InputError
from upmri.formats.label import describe
from upmri.scan import Reconstruction

_LONGEST = 32767  # an axis of NIfTI-1
_DESCRIPTION = 79


def write_magnitude(rec: Reconstruction, path: Path) -> None:
    """Write |image| as float32."""
    _write(rec, rec.image.abs().numpy(), path)


def write_complex(rec: Reconstruction, path: Path) -> None:
    """Write the image as complex64."""
    _write(rec, rec.image.numpy(), path)


def _write(rec: Reconstruction, image: NDArray[Any], path: Path) -> None:
    """Write (slice, readout, phase), gzipped if the name says so, the same bytes for the same image."""
    import nibabel

    if max(image.shape) > _LONGEST:
        raise InputError(
            f"{path.name}: NIfTI holds at most {_LONGEST} slices, got {len(image)}; expected .h5 for these"
        )
    affine = np.diag([*(rec.spacing or (1.0, 1.0, 1.0)), 1.0])
    nifti = nibabel.Nifti1Image(image.transpose(1, 2, 0), affine)
    nifti.header.set_xyzt_units("mm")
    nifti.header["descrip"] = describe(rec.method, _DESCRIPTION)
    with path.open("wb") as file:
        if path.name.lower().endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
                nifti.to_stream(packed)
        else:
            nifti.to_stream(file)
