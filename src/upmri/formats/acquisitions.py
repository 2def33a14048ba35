"""Readouts with the headers of ISMRMRD (MRD version 1), from a file or from a stream: what headers and XML say.

How readouts become a scan is told in :mod:`upmri.formats.readouts`. From the XML come the sizes of the grid, nothing
about the patient.

Headers tell where slices lie: their centres in DICOM's coordinates, from the isocentre, and the directions of readout,
phase and slice. The standard does not say how the sign of the signal goes with them. Assumed is
s(k) = ∫ ρ(x) exp(−2πi k·x) dx with k along the directions, so that indices of the image, the inverse transform, grow
along them. Siemens' signal is the conjugate of that: there, indices grow against the directions of all encoded axes. So
have it mrpro (``KData``), SIRF (``set_up_geom_info``) and ismrmrd_to_nifti, which was compared with the scanner's own
images.

Noise readouts are scaled to the bandwidth of imaging, Ψ ← Ψ · dwell(noise) / dwell(imaging) / β, with the dwell times
of the headers and β the ``relativeReceiverNoiseBandwidth``, by which noise sampled over the whole band is quieter than
in the middle of the band, where the image is.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import stack
from upmri.formats.grid import AXES, Grid, Ints, Table, place
from upmri.formats.readouts import ReadoutSource

NOISE, CALIBRATION, REVERSE, PHASE_CORRECTION = 19, 20, 22, 24
CALIBRATION_AND_IMAGING = 21
OTHER = {
    23: "navigation",
    PHASE_CORRECTION: "phase correction",
    26: "feedback",
    27: "dummy",
    28: "feedback",
    29: "surface coil correction",
    30: "phase stabilisation",
    31: "phase stabilisation",
}
_HEAD = ("flags", "number_of_samples", "active_channels", "center_sample", "discard_pre", "discard_post")


class AcquisitionSource(ReadoutSource):
    """Acquisitions of ISMRMRD: a subclass gives :meth:`_sort` the XML and the headers, and gathers samples."""

    @abstractmethod
    def _gather(self, rows: Ints, samples: int) -> NDArray[np.complex64]:
        """Read these acquisitions, numbered as their headers were, all of so many samples: (readout, coil, sample)."""

    def _sort(self, header: ElementTree.Element, head: dict[str, NDArray[Any]]) -> None:
        """Tell noise, calibration and imaging apart, and lay out what makes the image."""

        def flagged(number: int) -> NDArray[np.bool_]:
            return (head["flags"] >> np.uint64(number - 1) & np.uint64(1)).astype(bool)

        noise = flagged(NOISE)
        used = ~noise
        left_out: dict[str, int] = {}
        for number, kind in OTHER.items():
            if (other := used & flagged(number)).any():
                left_out[kind] = left_out.get(kind, 0) + int(other.sum())
                used &= ~other
        if not used.any():
            raise InputError("expected readouts of an image, there are none")
        # Of several encodings (an image, and a calibration of another kind) the one with most readouts is the image.
        space = np.bincount(head["encoding_space_ref"][used]).argmax()
        if (other := used & (head["encoding_space_ref"] != space)).any():
            left_out["of another encoding"] = int(other.sum())
            used &= ~other
        rows = np.flatnonzero(used)
        encodings = header.findall("encoding")
        if space >= len(encodings):
            raise InputError(f"xml: expected an encoding number {space}, there are {len(encodings)}")
        encoding = encodings[space]
        reverse = flagged(REVERSE)[rows]
        check_trajectory(encoding, echo_planar=bool(reverse.any()) and OTHER[PHASE_CORRECTION] in left_out)
        coils = np.unique(head["active_channels"][rows])
        if len(coils) > 1:
            raise InputError(f"data: expected readouts of the same coils, got {coils.min()} to {coils.max()} of them")
        self._meta |= {"left out": left_out} if left_out else {}

        step_1, step_2 = head["kspace_encode_step_1"][rows], head["kspace_encode_step_2"][rows]
        grid = encoded_grid(encoding, volume=bool(step_2.any()))
        table = Table(
            line=place("lines", step_1, _centre(encoding, 1), grid.lines),
            partition=place("partitions", step_2, _centre(encoding, 2), grid.partitions) if step_2.any() else step_2,
            counters=np.stack([head[name][rows] for name in AXES], 1),
            samples=head["number_of_samples"][rows],
            centre=head["center_sample"][rows],
            skip=np.stack([head["discard_pre"], head["discard_post"]], 1)[rows],
            reverse=reverse,
            calibration=(flagged(CALIBRATION) & ~flagged(CALIBRATION_AND_IMAGING))[rows],
        )
        mode = encoding.findtext("parallelImaging/calibrationMode", "")
        self._separate = mode in ("separate", "external") and bool(table.calibration.any())
        self._imaging = rows
        self._noise = np.flatnonzero(noise & (head["active_channels"] == coils[0]))
        self._samples = head["number_of_samples"]
        self._noise_scale = _noise_scale(header, head["sample_time_us"], self._noise, rows)
        directions = np.stack([head[name][rows] for name in ("read_dir", "phase_dir", "slice_dir")], 1)
        if "siemens" in header.findtext("acquisitionSystemInformation/systemVendor", "").lower():
            directions = stack.against(directions, grid)
        self._arrange(grid, table, int(coils[0]), head["position"][rows], directions)

    def _fetch(self, rows: Ints) -> NDArray[np.complex64]:
        return self._gather(self._imaging[rows], int(self._table.samples[rows[0]]))

    def _fetch_noise(self, count: int) -> NDArray[np.complex64] | None:
        found: list[NDArray[np.complex64]] = []
        for row in self._noise.tolist():
            found.append(self._gather(np.array([row]), int(self._samples[row]))[0])
            count -= found[-1].nbytes
            if count <= 0:
                break
        return np.concatenate(found, 1) if found else None


# --- what headers say -------------------------------------------------------------------------------------------------


def columns(head: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the fields of the headers that matter, integers as int64."""
    idx = head["idx"] if "idx" in (head.dtype.names or ()) else head[:0]
    counters = (*AXES, "kspace_encode_step_1", "kspace_encode_step_2")
    columns: dict[str, NDArray[Any]] = {}
    for record, wanted in ((head, (*_HEAD, "encoding_space_ref")), (idx, counters)):
        for name in wanted:
            if name not in (record.dtype.names or ()) or record[name].dtype.kind not in "iu" or record[name].ndim > 1:
                raise InputError(f"data: expected acquisition headers with an integer {name}")
            columns[name] = record[name].astype(np.uint64 if name == "flags" else np.int64)
            if name != "flags" and len(head) and not 0 <= columns[name].min() <= columns[name].max() < 2**16:
                raise InputError(f"data: expected acquisition headers with {name} from 0 to 65535")
    names = head.dtype.names or ()
    columns["sample_time_us"] = head["sample_time_us"] if "sample_time_us" in names else np.zeros(len(head))
    for name in ("position", "read_dir", "phase_dir", "slice_dir"):
        told = name in names and head[name].dtype.kind == "f" and head[name].shape == (len(head), 3)
        columns[name] = head[name] if told else np.zeros((len(head), 3))
    return columns


# --- what the XML says ------------------------------------------------------------------------------------------------


def parse_header(name: str, raw: bytes) -> ElementTree.Element:
    """Parse the XML, without what could make it grow or lead elsewhere, and without its namespace."""
    text = raw.rstrip(b"\0").decode("utf-8")
    if "<!" in text.replace("<!--", "").replace("<![CDATA[", ""):
        raise InputError(f"{name}: expected XML without DOCTYPE and entities")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314, entities are refused above
    except ElementTree.ParseError as error:
        raise InputError(f"{name}: expected an ISMRMRD header in XML ({error})") from error
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
    if root.tag != "ismrmrdHeader":
        raise InputError(f"{name}: expected an ISMRMRD header in XML, got <{root.tag[:40]}>")
    return root


def value_of(node: ElementTree.Element, path: str) -> float | None:
    """Return a finite number of the XML, None when there is none."""
    try:
        number = float(node.findtext(path, ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _centre(encoding: ElementTree.Element, step: int) -> int | None:
    centre = value_of(encoding, f"encodingLimits/kspace_encoding_step_{step}/center")
    return None if centre is None else int(centre)


def check_trajectory(encoding: ElementTree.Element, echo_planar: bool) -> None:
    """Refuse what is not Cartesian."""
    kind = encoding.findtext("trajectory", "").strip().lower()
    # What siemens_to_ismrmrd converts from echo-planar imaging says "cartesian" and describes its ramps.
    if "epi" in encoding.findtext("trajectoryDescription/identifier", "").lower() or echo_planar:
        kind = "epi"
    if kind != "cartesian":
        raise InputError(f"trajectory: expected cartesian, got {kind[:40] or 'nothing'}")


def encoded_grid(encoding: ElementTree.Element, volume: bool) -> Grid:
    """Return the grid of an encoding; without ``volume`` what the XML says of partitions does not count."""
    sizes = [value_of(encoding, f"encodedSpace/matrixSize/{axis}") for axis in "xyz"]
    if None in sizes[:2] or (volume and sizes[2] is None):
        raise InputError("xml: expected encodedSpace/matrixSize with x, y and z")
    samples, lines, partitions = (1 if size is None else int(max(0, min(size, 2**31))) for size in sizes)
    fields = [value_of(encoding, f"encodedSpace/fieldOfView_mm/{axis}") or 0.0 for axis in "xyz"]
    field = value_of(encoding, "reconSpace/fieldOfView_mm/x") or 0.0
    readout = max(1, round(samples * field / fields[0])) if 0 < field < fields[0] else samples
    spacing = None
    if min(fields) > 0 and min(samples, lines, partitions) > 0:
        spacing = (fields[0] / samples, fields[1] / lines, fields[2] / partitions)
    return Grid(samples, readout, lines, partitions if volume else 1, spacing)


def _noise_scale(header: ElementTree.Element, dwell: NDArray[Any], noise: Ints, imaging: Ints) -> float:
    """Return how much more variance noise has in imaging than in the noise readouts."""
    scale = 1.0
    if len(noise) and dwell[noise].min() > 0 and dwell[imaging].min() > 0:
        scale = float(np.median(dwell[noise]) / np.median(dwell[imaging]))
    band = value_of(header, "acquisitionSystemInformation/relativeReceiverNoiseBandwidth")
    return scale / band if band and 0 < band <= 1 else scale
