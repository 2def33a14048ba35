"""DICOM writer: a folder with one MR image per slice and, where the image has standard deviations, their map.

``NAME.dcm/`` holds 0001.dcm, 0002.dcm, … in the order of the slices: |image| in 16 bits, in the units of the scan once
rescaled, rows along readout and columns along phase. ``std.dcm`` beside them is a Parametric Map with the float32
values of ``rec.std``. Every save makes new UIDs. What a scan says about its patient, its name included, is not written.
Vendor, model, field strength, echo time and repetition time are those of ``meta["scanner"]``
(:mod:`upmri.formats.scanner`), empty where it has none.

Where the voxels lie in the patient is in ``meta["geometry"]``, see :mod:`upmri.core.geometry`. A scan whose slice axis
is not a stack in space but frames or echoes has none. Without it, slices are axial from the origin on, rows to the left
and columns to the back, and the file has a comment about it. Frames of a dynamic scan have their number in time, and
frames of one place have one position.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
from upmri.formats.dicom_images import image_series
from upmri.formats.dicom_map import deviation_map, find_highdicom

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_IMPLEMENTATION = "2.25.73687585012884687080705623066022631430"  # names UPMRI as the program that wrote a file
_MARK = b"\x02\x00\x12\x00UI\x2c\x00" + _IMPLEMENTATION.encode() + b"\x00"  # as it is stored, 44 bytes long
_LONGEST = 2**16 - 1  # rows or columns
_MOST_BYTES = 2**32 - 2  # of one element


def write(rec: Reconstruction, path: Path) -> None:
    """Write |image|, and ``rec.std`` if there is one, as files in a folder that is there and empty."""
    magnitude = rec.image.abs().numpy()
    _check(rec, magnitude)
    highdicom = None if rec.std is None else find_highdicom()
    slices = image_series(rec, magnitude)
    digits = max(4, len(str(len(slices))))
    for number, image in enumerate(slices, 1):
        _save(image, path / f"{number:0{digits}}.dcm")
        del image.PixelData
    if rec.std is not None:
        _save(deviation_map(highdicom, rec.std.numpy(), rec.method, slices), path / "std.dcm")


def is_ours(path: Path) -> bool:
    """Return whether UPMRI wrote this DICOM file, by the implementation that its header names."""
    try:
        with path.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return False
    return path.suffix == ".dcm" and head[128:132] == b"DICM" and _MARK in head


def _check(rec: Reconstruction, magnitude: NDArray[Any]) -> None:
    for name, values in (("image", magnitude), ("std", rec.std)):
        if values is not None and not np.isfinite(np.asarray(values)).all():
            raise InputError("expected finite values, found NaN or infinite ones", field=name)
    _, height, width = magnitude.shape
    if max(height, width) > _LONGEST or 2 * height * width > _MOST_BYTES:
        raise InputError(
            f"DICOM holds at most {_LONGEST} rows and columns and 4 GiB, got {height} × {width}", field="image"
        )
    if rec.std is not None and 4 * rec.std.numel() > _MOST_BYTES:
        raise InputError("DICOM holds at most 4 GiB in one file; save fewer slices, or as .h5", field="std")


def _save(made: Dataset, path: Path) -> None:
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import UID, ExplicitVRLittleEndian

    meta = made.file_meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.ImplementationClassUID = UID(_IMPLEMENTATION)
    meta.ImplementationVersionName = "UPMRI"
    made.save_as(path, enforce_file_format=True)
