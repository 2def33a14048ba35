"""The standard deviations of an image as a DICOM Parametric Map of float32 values."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats.dicom_images import display_window, series_description

if TYPE_CHECKING:
    from pydicom.dataset import Dataset


def find_highdicom() -> Any:
    """Return the package that writes the map of deviations; an InputError says how to install it."""
    try:
        return import_module("highdicom")
    except ImportError as error:
        raise InputError(
            "the map of deviations needs highdicom; pip install 'upmri[dicom]', or reconstruct without samples",
            field="std",
        ) from error


def deviation_map(highdicom: Any, std: NDArray[Any], method: str, slices: list[Dataset]) -> Dataset:
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
    window = display_window(std)
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
        series_description=series_description(f"std of {method}"),
    )
    # The descriptions of the slices hold for their deviations.
    for name in (
        "ImageComments", "DerivationDescription", "PatientIdentityRemoved", "DeidentificationMethod", "Laterality"
    ):  # fmt: skip
        setattr(made, name, first[name].value)
    return made
