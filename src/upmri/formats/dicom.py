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

import re
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from upmri.core import geometry
from upmri.core.bounds import NOT_COVERED
from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
from upmri.formats.label import describe
from upmri.formats.scanner import echo_times, known_facts

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_IMPLEMENTATION = "2.25.73687585012884687080705623066022631430"  # names UPMRI as the program that wrote a file
_MARK = b"\x02\x00\x12\x00UI\x2c\x00" + _IMPLEMENTATION.encode() + b"\x00"  # as it is stored, 44 bytes long
_WARNING = "NOT FOR CLINICAL USE"
_WHITE = 2**16 - 1
_COMMENT = 2000  # letters about bounds; a comment holds 10240
_LONGEST = 2**16 - 1  # rows or columns
_MOST_BYTES = 2**32 - 2  # of one element


def write(rec: Reconstruction, path: Path) -> None:
    """Write |image|, and ``rec.std`` if there is one, as files in a folder that is there and empty."""
    magnitude = rec.image.abs().numpy()
    _check(rec, magnitude)
    highdicom = None if rec.std is None else find_highdicom()
    slices = _series(rec, magnitude)
    digits = max(4, len(str(len(slices))))
    for number, image in enumerate(slices, 1):
        _save(image, path / f"{number:0{digits}}.dcm")
        del image.PixelData
    if rec.std is not None:
        _save(_deviations(highdicom, rec.std.numpy(), rec.method, slices), path / "std.dcm")


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


def find_highdicom() -> Any:
    """Return the package that writes the map of deviations; an InputError says how to install it."""
    try:
        return import_module("highdicom")
    except ImportError as error:
        raise InputError(
            "the map of deviations needs highdicom; pip install 'upmri[dicom]', or reconstruct without samples",
            field="std",
        ) from error


# --- the images -------------------------------------------------------------------------------------------------------


def _series(rec: Reconstruction, magnitude: NDArray[Any]) -> list[Dataset]:
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
        **_window(magnitude),
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
        "SeriesDescription": _description(rec.method),
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


def _description(what: str) -> str:
    return describe(_plain(what), 64).decode()


def _plain(text: str) -> str:
    r"""Return printable ASCII; a ``\`` would begin another value."""
    return re.sub(r"[^ -\[\]-~]", "?", text)


def _window(values: NDArray[Any]) -> dict[str, str]:
    """Show 0 as black and the 99.9th percentile as white, exactly: by the plain LINEAR no width may be under 1."""
    white = float(np.percentile(values, 99.9)) or float(values.max()) or 1.0
    return {"WindowCenter": _decimal(white / 2), "WindowWidth": _decimal(white), "VOILUTFunction": "LINEAR_EXACT"}


# --- the map of deviations --------------------------------------------------------------------------------------------


def _deviations(highdicom: Any, std: NDArray[Any], method: str, slices: list[Dataset]) -> Dataset:
    """Make the Parametric Map, in a series of its own beside that of the slices."""
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code
    from pydicom.uid import generate_uid

    mapping = highdicom.pm.RealWorldValueMapping(
        lut_label="std",
        lut_explanation="Standard deviation of samples, in the units of the scan",
        unit=codes.UCUM.NoUnits,
        value_range=(0.0, float(std.max())),
        slope=1.0,
        intercept=0.0,
        quantity_definition=Code("386136009", "SCT", "Standard Deviation"),
    )
    window = _window(std)
    first = slices[0]
    made: Dataset = highdicom.pm.ParametricMap(
        source_images=slices,
        pixel_array=std,
        series_instance_uid=generate_uid(None),
        series_number=2,
        sop_instance_uid=generate_uid(None),
        instance_number=1,
        manufacturer=first.Manufacturer,
        manufacturer_model_name=first.ManufacturerModelName,
        software_versions=first.SoftwareVersions,
        device_serial_number="UPMRI",
        contains_recognizable_visual_features=True,  # it may be a face
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[
            highdicom.VOILUTTransformation(
                window_center=float(window["WindowCenter"]),
                window_width=float(window["WindowWidth"]),
                voi_lut_function=window["VOILUTFunction"],
            )
        ],
        content_label="STD",
        content_description="Standard deviation of samples",
        series_description=_description(f"std of {method}"),
    )
    # The descriptions of the slices hold for their deviations.
    for name in (
        "ImageComments", "DerivationDescription", "PatientIdentityRemoved", "DeidentificationMethod", "Laterality"
    ):  # fmt: skip
        setattr(made, name, first[name].value)
    return made


# --- files ------------------------------------------------------------------------------------------------------------


def _dataset(values: dict[str, Any]) -> Dataset:
    from pydicom.dataset import Dataset

    made = Dataset()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _save(made: Dataset, path: Path) -> None:
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import UID, ExplicitVRLittleEndian

    meta = made.file_meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.ImplementationClassUID = UID(_IMPLEMENTATION)
    meta.ImplementationVersionName = "UPMRI"
    made.save_as(path, enforce_file_format=True)


def _decimal(value: float) -> str:
    """Return a number as DICOM writes it, in at most 16 characters."""
    from pydicom.valuerep import format_number_as_ds

    return format_number_as_ds(float(value))
