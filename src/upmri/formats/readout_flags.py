"""What the flags of an ISMRMRD readout mean: the one set of rules, for files and for streams.

========================  ==================================================================================
noise                     a noise measurement, whatever else is flagged
left out                  navigation, feedback, dummy, surface coil correction, phase stabilisation: not used for
                          the image; phase correction, which is used for echo-planar readouts alone
calibration               for calibration only
imaging                   everything else, also what is for calibration and imaging
========================  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Readouts that are left out, by the name of ismrmrd's constant. Where several apply, the first is the reason given.
_LEFT_OUT = {
    "ACQ_IS_NAVIGATION_DATA": "navigation",
    "ACQ_IS_PHASECORR_DATA": "phase correction",
    "ACQ_IS_HPFEEDBACK_DATA": "feedback",
    "ACQ_IS_DUMMYSCAN_DATA": "dummy",
    "ACQ_IS_RTFEEDBACK_DATA": "feedback",
    "ACQ_IS_SURFACECOILCORRECTIONSCAN_DATA": "surface coil correction",
    "ACQ_IS_PHASE_STABILIZATION_REFERENCE": "phase stabilisation",
    "ACQ_IS_PHASE_STABILIZATION": "phase stabilisation",
}
_OTHERS = (
    "ACQ_IS_NOISE_MEASUREMENT",
    "ACQ_IS_PARALLEL_CALIBRATION",
    "ACQ_IS_PARALLEL_CALIBRATION_AND_IMAGING",
    "ACQ_IS_REVERSE",
    "ACQ_LAST_IN_SLICE",
    "ACQ_LAST_IN_REPETITION",
    "ACQ_LAST_IN_MEASUREMENT",
)


@dataclass(frozen=True)
class ReadoutFlags:
    """The flags of one readout.

    Parameters
    ----------
    noise
        Whether it is a noise measurement.
    in_image
        Whether it belongs to the image or to its calibration.
    reason
        Why it is left out, "" if it is not.
    calibration_only
        Whether it is flagged for calibration and not for the image; also where it is left out.
    reverse
        Whether its samples run backwards.
    phase_correction
        Whether it is for phase correction.
    last_in_slice, last_in_repetition, last_in_measurement
        Whether it ends its slice, its repetition or the measurement. That holds for readouts that are left out, too.
    """

    noise: bool
    in_image: bool
    reason: str = ""
    calibration_only: bool = False
    reverse: bool = False
    phase_correction: bool = False
    last_in_slice: bool = False
    last_in_repetition: bool = False
    last_in_measurement: bool = False


def classify(flags: int) -> ReadoutFlags:
    """Return what the flags of an acquisition header mean."""
    return _classify(flags & _known())


def classify_all(flags: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
    """Return the same of many readouts: an array for each name in :class:`ReadoutFlags` that a file needs."""
    values, which = np.unique(flags & np.uint64(_known()), return_inverse=True)
    kinds = [classify(value) for value in values.tolist()]
    names = ("noise", "in_image", "calibration_only", "reverse", "phase_correction")
    columns = {name: np.array([getattr(kind, name) for kind in kinds], bool) for name in names}
    columns["reason"] = np.array([kind.reason for kind in kinds], "U32")
    return {name: column[which.reshape(-1)] for name, column in columns.items()}


def calibration_is_separate(declared: bool, shortest: int, longest: int) -> bool:
    """Return whether calibration lines are of an acquisition of their own, and so stay out of k-space.

    Parameters
    ----------
    declared
        Whether the header says that they were acquired separately.
    shortest
        Number of samples of the shortest calibration line.
    longest
        Number of samples of the longest line of the image. Calibration lines of the same acquisition are as long.
    """
    return bool(declared or shortest < longest)


@cache
def _bits() -> dict[str, int]:
    import ismrmrd

    return {name: 1 << (getattr(ismrmrd, name) - 1) for name in (*_OTHERS, *_LEFT_OUT)}


@cache
def _known() -> int:
    return sum(_bits().values())


@lru_cache(maxsize=4096)
def _classify(flags: int) -> ReadoutFlags:
    bits = _bits()

    def has(name: str) -> bool:
        return bool(flags & bits[name])

    noise = has("ACQ_IS_NOISE_MEASUREMENT")
    reason = "" if noise else next((reason for name, reason in _LEFT_OUT.items() if has(name)), "")
    return ReadoutFlags(
        noise,
        not (noise or reason),
        reason,
        calibration_only=has("ACQ_IS_PARALLEL_CALIBRATION") and not has("ACQ_IS_PARALLEL_CALIBRATION_AND_IMAGING"),
        reverse=has("ACQ_IS_REVERSE"),
        phase_correction=not noise and has("ACQ_IS_PHASECORR_DATA"),
        last_in_slice=has("ACQ_LAST_IN_SLICE"),
        last_in_repetition=has("ACQ_LAST_IN_REPETITION"),
        last_in_measurement=has("ACQ_LAST_IN_MEASUREMENT"),
    )
