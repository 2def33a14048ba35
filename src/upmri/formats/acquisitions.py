"""Readouts with the headers of ISMRMRD (MRD version 1), from a file or from a stream.

What the flags of a readout mean is in :mod:`upmri.formats.readout_flags`, what the XML says in
:mod:`upmri.formats.mrd_header`, and how readouts become a scan in :mod:`upmri.formats.readouts`.

Headers say where slices lie: their centres in DICOM's coordinates, from the isocentre, and the directions of readout,
phase and slice. The standard does not define how the sign of the signal goes with them. The assumption is
s(k) = ∫ ρ(x) exp(−2πi k·x) dx with k along the directions, so that indices of the image, the inverse transform, grow
along them. Siemens' signal is the conjugate of that: there, indices grow against the directions of all encoded axes.
mrpro (``KData``), SIRF (``set_up_geom_info``) and ismrmrd_to_nifti, which was compared with the scanner's own images,
do the same.

Noise readouts are scaled to the bandwidth of imaging, Ψ ← Ψ · dwell(noise) / dwell(imaging) / β, with the dwell times
of the headers and β the ``relativeReceiverNoiseBandwidth``: noise sampled over the whole band has less power per
sample than noise in the middle of the band, where the image is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import stack
from upmri.formats.echo_planar import Navigators
from upmri.formats.grid import AXES, Ints, Table, place
from upmri.formats.mrd_header import MrdHeader
from upmri.formats.readout_flags import classify_all
from upmri.formats.readouts import ReadoutSource

# Samples at the beginning and the end of a readout that a pilot tone spoils (OCMR's own reader leaves them out).
_PILOT_TONE = (3, 1)
_HEAD = ("flags", "number_of_samples", "active_channels", "center_sample", "discard_pre", "discard_post")


class AcquisitionSource(ReadoutSource):
    """Acquisitions of ISMRMRD: a subclass gives :meth:`_sort` the header and the columns, and gathers samples."""

    @abstractmethod
    def _gather(self, rows: Ints, samples: int) -> NDArray[np.complex64]:
        """Read these acquisitions, numbered as their headers, all of ``samples`` samples: (readout, coil, sample)."""

    def _sort(self, header: MrdHeader, head: dict[str, NDArray[Any]]) -> None:
        """Separate noise, calibration and imaging, and lay out what makes the image."""
        kinds = classify_all(head["flags"])
        used = kinds["in_image"]
        reasons, counts = np.unique(kinds["reason"][kinds["reason"] != ""], return_counts=True)
        left_out: dict[str, int] = dict(zip(reasons.tolist(), counts.tolist(), strict=True))
        if not used.any():
            raise InputError("expected readouts of an image, there are none", field="data")
        # Of several encodings (an image, and a calibration of another kind) the one with most readouts is the image.
        space = int(np.bincount(head["encoding_space_ref"][used]).argmax())
        if (other := used & (head["encoding_space_ref"] != space)).any():
            left_out["of another encoding"] = int(other.sum())
            used &= ~other
        rows = np.flatnonzero(used)
        encoding = header.encoding(space)
        reverse = kinds["reverse"][rows]
        encoding.check_cartesian()
        coils = np.unique(head["active_channels"][rows])
        if len(coils) > 1:
            raise InputError(
                f"expected readouts of the same coils, got {coils.min()} to {coils.max()} of them", field="data"
            )
        counters = np.stack([head[name] for name in AXES], 1)
        self._samples = head["number_of_samples"]
        self._ramp = ramp = encoding.ramp if reverse.any() else None
        if reverse.any():
            own = kinds["phase_correction"] & (head["encoding_space_ref"] == space)
            length = int(self._samples[rows].max())
            own &= (head["active_channels"] == coils[0]) & (self._samples == length)
            left_out["phase correction"] = left_out.get("phase correction", 0) - int(own.sum())
            at = np.flatnonzero(own)
            self._navigators = Navigators(at, counters[at], kinds["reverse"][at]) if len(at) else None
        left_out = {reason: count for reason, count in left_out.items() if count}
        self._meta |= {"left out": left_out} if left_out else {}
        self._meta |= {"scanner": facts} if (facts := header.scanner) else {}
        skip = np.stack([head["discard_pre"], head["discard_post"]], 1)[rows]
        if header.pilot_tone:
            skip = np.maximum(skip, _PILOT_TONE)
            self._meta["pilot tone"] = "samples left out of each readout: first {}, last {}".format(*_PILOT_TONE)

        step_1, step_2 = head["kspace_encode_step_1"][rows], head["kspace_encode_step_2"][rows]
        grid = encoding.grid(volume=bool(step_2.any()))
        table = Table(
            line=place("lines", step_1, encoding.centre(1), grid.lines),
            partition=place("partitions", step_2, encoding.centre(2), grid.partitions) if step_2.any() else step_2,
            counters=counters[rows],
            **(_regular(rows, head, skip) if ramp is None else _regridded(rows, head, ramp.samples, grid.samples)),
            reverse=reverse,
            calibration=kinds["calibration_only"][rows],
        )
        self._declared_separate = encoding.separate_calibration
        self._imaging = rows
        self._noise = np.flatnonzero(kinds["noise"] & (head["active_channels"] == coils[0]))
        self._noise_scale = _noise_scale(header, head["sample_time_us"], self._noise, rows)
        directions = np.stack([head[name][rows] for name in ("read_dir", "phase_dir", "slice_dir")], 1)
        if header.siemens:
            directions = stack.against(directions, grid)
        self._arrange(grid, table, int(coils[0]), head["position"][rows], directions)

    def _fetch(self, rows: Ints) -> NDArray[np.complex64]:
        return self._fetch_navigators(self._imaging[rows])

    def _fetch_navigators(self, number: Ints) -> NDArray[np.complex64]:
        return self._gather(number, int(self._samples[number[0]]))

    def _fetch_noise(self, count: int) -> NDArray[np.complex64] | None:
        found: list[NDArray[np.complex64]] = []
        for row in self._noise.tolist():
            found.append(self._gather(np.array([row]), int(self._samples[row]))[0])
            count -= found[-1].nbytes
            if count <= 0:
                break
        return np.concatenate(found, 1) if found else None


def _regular(rows: Ints, head: dict[str, NDArray[Any]], skip: Ints) -> dict[str, Ints]:
    """Samples, their centre and those to skip."""
    return {"samples": head["number_of_samples"][rows], "centre": head["center_sample"][rows], "skip": skip}


def _regridded(rows: Ints, head: dict[str, NDArray[Any]], taken: int, length: int) -> dict[str, Ints]:
    """The same of ramp samples, which fill the grid when they are regridded."""
    if (wrong := head["number_of_samples"][rows] != taken).any():
        count = head["number_of_samples"][rows][wrong][0]
        raise InputError(
            f"expected readouts of {taken} samples, as the trajectory has, got one of {count}", field="data"
        )
    all_of = np.full(len(rows), length)
    return {"samples": all_of, "centre": all_of // 2, "skip": np.zeros((len(rows), 2), np.int64)}


def header_columns(head: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the fields of acquisition headers that are used, by name; integers as int64."""
    idx = head["idx"] if "idx" in (head.dtype.names or ()) else head[:0]
    counters = (*AXES, "kspace_encode_step_1", "kspace_encode_step_2")
    columns: dict[str, NDArray[Any]] = {}
    for record, wanted in ((head, (*_HEAD, "encoding_space_ref")), (idx, counters)):
        for name in wanted:
            if name not in (record.dtype.names or ()) or record[name].dtype.kind not in "iu" or record[name].ndim > 1:
                raise InputError(f"expected acquisition headers with an integer {name}", field="data")
            columns[name] = record[name].astype(np.uint64 if name == "flags" else np.int64)
            if name != "flags" and len(head) and not 0 <= columns[name].min() <= columns[name].max() < 2**16:
                raise InputError(f"expected acquisition headers with {name} from 0 to 65535", field="data")
    names = head.dtype.names or ()
    columns["sample_time_us"] = head["sample_time_us"] if "sample_time_us" in names else np.zeros(len(head))
    for name in ("position", "read_dir", "phase_dir", "slice_dir"):
        given = name in names and head[name].dtype.kind == "f" and head[name].shape == (len(head), 3)
        columns[name] = head[name] if given else np.zeros((len(head), 3))
    return columns


def _noise_scale(header: MrdHeader, dwell: NDArray[Any], noise: Ints, imaging: Ints) -> float:
    """Return the variance of noise in imaging per variance in noise readouts."""
    scale = 1.0
    if len(noise) and dwell[noise].min() > 0 and dwell[imaging].min() > 0:
        scale = float(np.median(dwell[noise]) / np.median(dwell[imaging]))
    return scale / (header.noise_bandwidth or 1.0)
