"""MRD messages of images: headers with the position in the patient, and attributes that describe the image.

Pixels are (channel, z, y, x) with x along the readout and y along the phase encoding. ``position`` is the centre of
pixel (n // 2, n // 2), and the directions are those along which x and y grow; all are 0 where the scan has no geometry.
"""

from __future__ import annotations

import json
from typing import Any

import ismrmrd
import numpy as np
from numpy.typing import NDArray

from upmri.core.bounds import NOT_COVERED
from upmri.core.version import __version__
from upmri.server import wire
from upmri.server.assemble import Frame

MAGNITUDE, DEVIATION, COMPLEX = 1, 2, 3  # numbers of the series
NOTICE = "NOT FOR CLINICAL USE"
READOUT = "UPMRI_slices"  # an attribute: "readout" where slices are positions of a 3-D readout
_HEAD = np.dtype(ismrmrd.AcquisitionHeader).itemsize
_NAMES = {MAGNITUDE: "image", DEVIATION: "deviation", COMPLEX: "complex image"}


class Series:
    """Makes the messages of the images of one stream, and numbers them.

    Parameters
    ----------
    method
        Name of the method, for the attributes.
    keep_phase
        Whether complex images are sent, too.
    """

    def __init__(self, method: str, keep_phase: bool) -> None:
        self._method, self._keep_phase = method, keep_phase
        self._counts: dict[int, int] = {}
        self._windows: dict[int, float] = {}
        self._settings: dict[str, Any] = {}
        self._left_out: set[int] = set()
        self._one_frame = False

    @property
    def count(self) -> int:
        """Number of magnitude images so far."""
        return self._counts.get(MAGNITUDE, 0)

    def messages(self, frame: Frame, answer: dict[str, Any], arrays: list[memoryview]) -> list[bytes]:
        """Return the messages of one answer of the worker: the image of a frame, or of one position in a volume."""
        shape = tuple(answer["shape"])
        image = np.frombuffer(arrays[0], np.complex64).reshape(shape)
        self._settings = self._settings or answer["settings"]  # only the first answer has the choice of weights
        made: list[tuple[int, NDArray[Any]]] = [(MAGNITUDE, np.abs(image))]
        if len(arrays) > 1:
            made.append((DEVIATION, np.frombuffer(arrays[1], np.float32).reshape(shape)))
        if self._keep_phase:
            made.append((COMPLEX, image))
        return [self._message(series, pixels, frame, answer) for series, pixels in made]

    def warnings(self, answer: dict[str, Any], where: str) -> list[bytes]:
        """Return messages about what was wrong with a frame; coils that were left out and single frames, once."""
        coils = sorted(set(answer["found"].get("left_out_coils", ())) - self._left_out)
        self._left_out.update(coils)
        texts = [f"coil {coil} would spoil the image and is left out" for coil in coils]
        texts += ["nothing was sampled, the image is 0"] * ("empty_slices" in answer["found"])
        if "one_frame" in answer["found"] and not self._one_frame:
            self._one_frame = True
            texts.append(answer["found"]["one_frame"])
        return [wire.text_message(f"warning: {where}: {text}") for text in texts]

    def _message(self, series: int, pixels: NDArray[Any], frame: Frame, answer: dict[str, Any]) -> bytes:
        self._counts[series] = self._counts.get(series, 0) + 1
        first = ismrmrd.AcquisitionHeader.from_buffer_copy((frame.rows.heads or frame.calibration.heads)[:_HEAD])
        head = ismrmrd.ImageHeader()
        head.version = 1
        for name in ("measurement_uid", "acquisition_time_stamp"):
            setattr(head, name, getattr(first, name))
        head.physiology_time_stamp[:] = first.physiology_time_stamp[:]
        head.patient_table_position[:] = first.patient_table_position[:]
        repetition, phase, set_, contrast, number = frame.key
        head.repetition, head.phase, head.set, head.contrast = repetition, phase, set_, contrast
        head.slice = (number * answer["readouts"] + answer["index"] if answer["volume"] else number) & 0xFFFF
        head.image_type = ismrmrd.IMTYPE_COMPLEX if series == COMPLEX else ismrmrd.IMTYPE_MAGNITUDE
        head.image_series_index = series
        head.image_index = self._counts[series] & 0xFFFF
        spacing = answer["spacing"] or (0.0, 0.0, 0.0)
        head.field_of_view[:] = [spacing[0] * pixels.shape[0], spacing[1] * pixels.shape[1], spacing[2]]
        attributes = self._attributes(series, pixels, answer)
        if answer["place"] is None:
            head.position[:] = first.position[:]
        else:
            place = {name: np.array(answer["place"][name]) for name in ("position", "readout", "phase", "slice")}
            steps = [(pixels.shape[0] // 2) * spacing[0], (pixels.shape[1] // 2) * spacing[1]]
            head.position[:] = place["position"] + steps[0] * place["readout"] + steps[1] * place["phase"]
            head.read_dir[:], head.phase_dir[:], head.slice_dir[:] = place["readout"], place["phase"], place["slice"]
            attributes["ImageRowDir"] = [f"{x:.12f}" for x in place["readout"]]
            attributes["ImageColumnDir"] = [f"{x:.12f}" for x in place["phase"]]
        return wire.image_message(head, attributes.serialize(), pixels.T[None, None])

    def _attributes(self, series: int, pixels: NDArray[Any], answer: dict[str, Any]) -> Any:
        """Return the attributes; all images of a series have the window of its first, to make slices comparable."""
        if series not in self._windows:
            self._windows[series] = float(np.quantile(np.abs(pixels), 0.999)) or 1.0
        top = self._windows[series]
        settings = {"version": __version__, "method": self._method, **self._settings, **answer["found"]}
        attributes = {
            "DataRole": "Image",
            "ImageProcessingHistory": ["UPMRI", self._method],
            "SequenceDescriptionAdditional": f"UPMRI_{self._method}" + ("_std" if series == DEVIATION else ""),
            "ImageComment": f"{NOTICE}: {_NAMES[series]} by UPMRI {__version__}, {self._method}",
            "WindowCenter": f"{top / 2:.6g}",
            "WindowWidth": f"{top:.6g}",
            "Keep_image_geometry": "1",
            "UPMRI": json.dumps(settings, sort_keys=True),
            "UPMRI_notice": NOTICE,
        }
        if "bounds" in answer["found"]:
            attributes["UPMRI_bounds"] = f"{answer['found']['bounds']['sentence']}. {NOT_COVERED}"
        if "sha256" in self._settings:
            attributes["UPMRI_weights_sha256"] = self._settings["sha256"]
        if answer["volume"]:
            attributes[READOUT] = "readout"
        return ismrmrd.Meta(attributes)
