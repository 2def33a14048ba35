"""The MR images of a DICOM series, one per slice: pixels, place in the patient, and descriptions."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from upmri.core import geometry
from upmri.core.bounds import NOT_COVERED
from upmri.core.scan import Reconstruction
from upmri.formats.label import describe
from upmri.formats.scanner import echo_times, known_facts

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_WARNING = "NOT FOR CLINICAL USE"
_WHITE = 2**16 - 1
_COMMENT = 2000  # letters about bounds; a comment holds 10240


def image_series(rec: Reconstruction, magnitude: NDArray[Any]) -> list[Dataset]:
    """Make the MR images, one per slice, all with the same scale."""
    from pydicom.uid import generate_uid

    from upmri.physics.frames import places

    slope = _decimal(float(magnitude.max()) / _WHITE or 1.0)
    known = geometry.affine(rec.spacing, rec.meta)
    matrix = geometry.axial(rec.spacing) if known is None else known
    readout, phase = (matrix[:3, axis] / np.linalg.norm(matrix[:3, axis]) for axis in (0, 1))
    rows, columns, thickness = rec.spacing or (1.0, 1.0, 1.0)
    times = echo_times(rec.meta, len(magnitude))
    common = _about(rec, located=known is not None) | {
        **_acquired(rec),
        "StudyInstanceUID": generate_uid(None),
        "SeriesInstanceUID": generate_uid(None),
        "FrameOfReferenceUID": generate_uid(None),
        "Rows": magnitude.shape[1],
        "Columns": magnitude.shape[2],
        "RescaleSlope": slope,
        "PixelSpacing": [_decimal(rows), _decimal(columns)],
        "SliceThickness": _decimal(thickness),
        "SpacingBetweenSlices": _decimal(thickness),
        # DICOM gives first the direction of a row, along which the columns are counted.
        "ImageOrientationPatient": [_decimal(x) for x in (*phase, *readout)],
        **display_window(magnitude),
    }
    place_of = None if rec.std is not None else places(rec.meta, len(magnitude))  # a map has one image for a position
    images = []
    for number, pixels in enumerate(magnitude):
        image = _dataset({**_CONSTANT, **common})
        image.SOPInstanceUID = generate_uid(None)
        image.InstanceNumber = number + 1
        if (time := times[number]) is not None:
            image.EchoTime = _decimal(time)
        at = number
        if place_of is not None:
            at = place_of[number]
            image.TemporalPositionIdentifier = place_of[: number + 1].count(at)
            image.NumberOfTemporalPositions = place_of.count(at)
        image.ImagePositionPatient = [_decimal(x) for x in (matrix @ [0, 0, at, 1])[:3]]
        image.PixelData = np.rint(pixels.astype(float) / float(slope)).astype("<u2").tobytes()
        image["PixelData"].VR = "OW"
        images.append(image)
    return images


# What DICOM requires, empty where it is not known.
_CONSTANT: dict[str, Any] = {
    "SOPClassUID": "1.2.840.10008.5.1.4.1.1.4",  # MR Image Storage
    "Modality": "MR",
    "ImageType": ["DERIVED", "PRIMARY", "OTHER"],
    **dict.fromkeys(("PatientName", "PatientID", "PatientBirthDate", "PatientSex"), ""),
    "PatientIdentityRemoved": "YES",
    "DeidentificationMethod": "UPMRI writes nothing about the patient",
    **dict.fromkeys(("StudyDate", "StudyTime", "StudyID", "AccessionNumber", "ReferringPhysicianName"), ""),
    "SeriesNumber": 1,
    **dict.fromkeys(("PatientPosition", "Laterality"), ""),
    "PositionReferenceIndicator": "",
    "Manufacturer": "UPMRI",
    "ManufacturerModelName": "UPMRI",
    "ScanningSequence": "RM",  # research mode: which sequence it was is not known
    "SequenceVariant": "NONE",
    **dict.fromkeys(("ScanOptions", "MRAcquisitionType"), ""),
    **dict.fromkeys(("RepetitionTime", "EchoTime", "EchoTrainLength"), None),
    "SamplesPerPixel": 1,
    "PhotometricInterpretation": "MONOCHROME2",
    "BitsAllocated": 16,
    "BitsStored": 16,
    "HighBit": 15,
    "PixelRepresentation": 0,
    "RescaleIntercept": "0",
    "RescaleType": "US",  # unspecified units
}


def _about(rec: Reconstruction, *, located: bool) -> dict[str, str]:
    """Return the description of an image in words, and when it was made."""
    from upmri.core.version import __version__

    made = f"UPMRI {_plain(rec.versions.get('upmri', '(version unknown)'))[:64]}, method {_plain(rec.method)[:200]}"
    if rec.settings.get("model") is not None:
        # Without its folder, which may name a person or a machine.
        name = re.split(r"[\\/]", str(rec.settings["model"]))[-1]
        made += f", weights {_plain(name)[:200]}"
    if rec.settings.get("sha256") is not None:
        made += f", sha256 {_plain(str(rec.settings['sha256']))[:64]}"
    comments = [f"{_WARNING}.", "Reconstructed from undersampled k-space."]
    comments += [] if located else ["Position and orientation are not known: axial from the origin on."]
    comments += [] if rec.spacing else ["Voxel size is not known: 1 mm."]
    if rec.bounds is not None:
        comments.append(f"PSNR {_plain(rec.bounds.sentence)}. {NOT_COVERED}"[:_COMMENT])
    now = datetime.now()
    return {
        "SeriesDescription": series_description(rec.method),
        "DerivationDescription": made,
        "ImageComments": " ".join(comments),
        "SoftwareVersions": f"UPMRI {__version__}",
        "InstanceCreationDate": f"{now:%Y%m%d}",
        "InstanceCreationTime": f"{now:%H%M%S}",
    }


def _acquired(rec: Reconstruction) -> dict[str, str]:
    """Return what is known about the scanner and the contrast; the echo time is that of each image."""
    facts = known_facts(rec.meta)
    numbers = {"MagneticFieldStrength": "field_strength", "RepetitionTime": "repetition_time"}
    found = {name: _decimal(facts[key]) for name, key in numbers.items() if key in facts}
    if "vendor" in facts:  # the program is in SoftwareVersions and DerivationDescription
        found |= {"Manufacturer": _plain(facts["vendor"]), "ManufacturerModelName": _plain(facts.get("model", ""))}
    return found


def series_description(what: str) -> str:
    """Return a description with the warning against clinical use, in at most 64 characters."""
    return describe(_plain(what), 64).decode()


def _plain(text: str) -> str:
    r"""Return printable ASCII; a ``\`` would begin another value."""
    return re.sub(r"[^ -\[\]-~]", "?", text)


def display_window(values: NDArray[Any]) -> dict[str, str]:
    """Show 0 as black and the 99.9th percentile as white, exactly: by the plain LINEAR no width may be under 1."""
    white = float(np.percentile(values, 99.9)) or float(values.max()) or 1.0
    return {"WindowCenter": _decimal(white / 2), "WindowWidth": _decimal(white), "VOILUTFunction": "LINEAR_EXACT"}


def _dataset(values: dict[str, Any]) -> Dataset:
    from pydicom.dataset import Dataset

    made = Dataset()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _decimal(value: float) -> str:
    """Return a number as DICOM writes it, in at most 16 characters."""
    from pydicom.valuerep import format_number_as_ds

    return format_number_as_ds(float(value))
