"""The XML header of ISMRMRD (MRD version 1): the one reader for MRD files, MRD streams and fastMRI files.

Sizes, fields of view, limits of the encodings, scanner and times are read, nothing about the patient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from upmri.core.errors import InputError
from upmri.formats.grid import Grid
from upmri.formats.scanner import scanner_facts

if TYPE_CHECKING:
    from upmri.physics.epi import Ramp

_MOST = 2**16 - 1  # ISMRMRD counts in 16 bits
_SEPARATE = ("separate", "external")  # calibrationMode
_RAMP = ("rampUpTime", "flatTopTime", "rampDownTime", "acqDelayTime", "dwellTime", "numSamples")


class Encoding:
    """One ``encoding`` of the header: a grid of k-space and the limits of its counters.

    Parameters
    ----------
    node
        The XML element, without namespaces.
    field
        Name of the header, for messages about what is wrong in it.
    """

    def __init__(self, node: ElementTree.Element, field: str) -> None:
        self._node, self._field = node, field

    def text(self, path: str) -> str:
        """Return the text of an element, "" where there is none."""
        return (self._node.findtext(path) or "").strip()

    def number(self, path: str) -> float | None:
        """Return a finite number, None where there is none."""
        return _number(self._node, path)

    def count(self, path: str, least: int = 0) -> int:
        """Return a whole number from ``least`` to 65535, which must be there."""
        text = self.text(path)
        if not (text.isascii() and text.isdecimal() and len(text) < 9 and least <= int(text) <= _MOST):
            raise InputError(
                f"expected a number from {least} to {_MOST}, got {text[:40]!r}", field=f"{self._field}.{path}"
            )
        return int(text)

    def matrix(self, space: str) -> tuple[int, int, int]:
        """Return the matrix size (x, y, z) of ``encodedSpace`` or ``reconSpace``, which must be there."""
        x, y, z = (self.count(f"{space}/matrixSize/{axis}", 1) for axis in "xyz")
        return x, y, z

    def field_of_view(self, space: str) -> tuple[float, float, float]:
        """Return the field of view (x, y, z) in mm of ``encodedSpace`` or ``reconSpace``, 0 where it is not given."""
        x, y, z = (self.number(f"{space}/fieldOfView_mm/{axis}") or 0.0 for axis in "xyz")
        return x, y, z

    def centre(self, step: int) -> int | None:
        """Return the counter at the centre of k-space of phase encoding 1 or 2, None where it is not given."""
        centre = self.number(f"encodingLimits/kspace_encoding_step_{step}/center")
        return None if centre is None else int(centre)

    def length(self, limit: str, otherwise: int) -> int:
        """Return how many values a counter takes by its minimum and maximum, 1 to 65536; else ``otherwise``."""
        low = self.number(f"encodingLimits/{limit}/minimum") or 0
        high = self.number(f"encodingLimits/{limit}/maximum")
        return int(min(max(otherwise if high is None else high - low + 1, 1), _MOST + 1))

    @property
    def volume(self) -> bool:
        """Whether there are several partitions (3-D)."""
        return (self.number("encodedSpace/matrixSize/z") or 0) > 1

    @property
    def separate_calibration(self) -> bool:
        """Whether the header says that calibration lines were acquired separately."""
        return self.text("parallelImaging/calibrationMode") in _SEPARATE

    def check_cartesian(self) -> None:
        """Refuse what is neither Cartesian nor echo-planar, of which the readouts are Cartesian, too."""
        kind = self.text("trajectory").lower()
        if kind not in ("cartesian", "epi"):
            raise InputError(f"expected cartesian or epi, got {kind[:40] or 'nothing'}", field="trajectory")

    @property
    def ramp(self) -> Ramp | None:
        """The echo-planar readout gradient, if it is sampled on its ramps: ``trajectoryDescription``, times in µs.

        The names are those of siemens_to_ismrmrd, which Gadgetron reads.
        """
        from upmri.physics.epi import Ramp

        values = {
            node.findtext("name", ""): _number(node, "value")
            for kind in ("Long", "Double")
            for node in self._node.findall(f"trajectoryDescription/userParameter{kind}")
        }
        found = [values.get(name) for name in _RAMP]
        if None in found:
            return None
        rise, flat, fall, delay, dwell, samples = (value or 0.0 for value in found)
        ramp = Ramp(rise, flat, fall, delay, dwell, int(max(0, min(samples, _MOST))))
        return None if ramp.regular else ramp

    def grid(self, volume: bool) -> Grid:
        """Return the grid of k-space; without ``volume`` the header's number of partitions does not count."""
        sizes = [self.number(f"encodedSpace/matrixSize/{axis}") for axis in "xyz"]
        if None in sizes[:2] or (volume and sizes[2] is None):
            raise InputError("expected encodedSpace/matrixSize with x, y and z", field=self._field)
        samples, lines, partitions = (1 if size is None else int(max(0, min(size, 2**31))) for size in sizes)
        fields = self.field_of_view("encodedSpace")
        field = self.field_of_view("reconSpace")[0]
        readout = max(1, round(samples * field / fields[0])) if 0 < field < fields[0] else samples
        spacing = None
        if min(fields) > 0 and min(samples, lines, partitions) > 0:
            spacing = (fields[0] / samples, fields[1] / lines, fields[2] / partitions)
        return Grid(samples, readout, lines, partitions if volume else 1, spacing)


class MrdHeader:
    """A header of ISMRMRD.

    Parameters
    ----------
    xml
        The XML, as text or as UTF-8. What could make it grow or lead elsewhere, such as entities, is refused.
    field
        Name of the header in its file or stream, for messages.

    Attributes
    ----------
    encodings
        The encodings, to which readouts refer by number.
    """

    def __init__(self, xml: str | bytes, field: str) -> None:
        self._field = field
        self._root = _parse(xml, field)
        self.encodings = [Encoding(node, field) for node in self._root.findall("encoding")]

    def encoding(self, number: int) -> Encoding:
        """Return the encoding of this number, which must be there."""
        if number >= len(self.encodings):
            raise InputError(
                f"expected an encoding number {number}, there are {len(self.encodings)}", field=self._field
            )
        return self.encodings[number]

    @property
    def siemens(self) -> bool:
        """Whether the scanner is of Siemens."""
        return "siemens" in (self._root.findtext("acquisitionSystemInformation/systemVendor") or "").lower()

    @property
    def scanner(self) -> dict[str, Any]:
        """Vendor, model, field strength, echo times and repetition time, as far as they are given."""
        system, sequence = "acquisitionSystemInformation", "sequenceParameters"
        return scanner_facts(
            vendor=self._root.findtext(f"{system}/systemVendor"),
            model=self._root.findtext(f"{system}/systemModel"),
            field_strength=_number(self._root, f"{system}/systemFieldStrength_T"),
            echo_time=[_number(node, ".") for node in self._root.findall(f"{sequence}/TE")],
            repetition_time=_number(self._root, f"{sequence}/TR"),
        )

    @property
    def noise_bandwidth(self) -> float | None:
        """The ``relativeReceiverNoiseBandwidth``, in (0, 1]; None where it is not given."""
        band = _number(self._root, "acquisitionSystemInformation/relativeReceiverNoiseBandwidth")
        return band if band and 0 < band <= 1 else None

    @property
    def pilot_tone(self) -> bool:
        """Whether a pilot tone was on, as OCMR's files say (``userParameterLong``)."""
        nodes = self._root.findall("userParameters/userParameterLong")
        return any(node.findtext("name", "") == "PilotTone" and _number(node, "value") == 1 for node in nodes)

    def user_parameter(self, name: str) -> float | None:
        """Return a ``userParameterDouble`` ≥ 0; None where there is none."""
        for node in self._root.findall("userParameters/userParameterDouble"):
            if node.findtext("name", "") == name:
                value = _number(node, "value")
                return value if value is not None and value >= 0 else None
        return None


def _parse(xml: str | bytes, field: str) -> ElementTree.Element:
    """Return the root of the XML, of which all names have lost their namespace."""
    try:
        text = xml if isinstance(xml, str) else xml.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("expected an ISMRMRD header in XML, as UTF-8", field=field) from error
    if "<!" in text.replace("<!--", "").replace("<![CDATA[", ""):
        raise InputError("expected XML without DOCTYPE and entities", field=field)
    try:
        root = ElementTree.fromstring(text)  # noqa: S314, entities are refused above
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise InputError(f"expected an ISMRMRD header in XML ({error})", field=field) from error
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
    if root.tag != "ismrmrdHeader":
        raise InputError(f"expected an ISMRMRD header in XML, got <{root.tag[:40]}>", field=field)
    return root


def _number(node: ElementTree.Element, path: str) -> float | None:
    try:
        number = float(node.findtext(path) or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
