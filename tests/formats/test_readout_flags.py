"""The meaning of flags, for one readout and for many alike."""

from __future__ import annotations

import itertools

import ismrmrd
import numpy as np
import pytest

from upmri.formats.readout_flags import calibration_is_separate, classify, classify_all

NOISE = ismrmrd.ACQ_IS_NOISE_MEASUREMENT
CALIBRATION = ismrmrd.ACQ_IS_PARALLEL_CALIBRATION
BOTH = ismrmrd.ACQ_IS_PARALLEL_CALIBRATION_AND_IMAGING
NAVIGATION = ismrmrd.ACQ_IS_NAVIGATION_DATA
PHASE_CORRECTION = ismrmrd.ACQ_IS_PHASECORR_DATA


def bits(*flags: int) -> int:
    return sum(1 << (flag - 1) for flag in flags)


@pytest.mark.parametrize(
    ("flags", "noise", "in_image", "reason"),
    [
        ((), False, True, ""),
        ((ismrmrd.ACQ_USER1, ismrmrd.ACQ_FIRST_IN_SLICE), False, True, ""),
        ((CALIBRATION,), False, True, ""),
        ((BOTH,), False, True, ""),
        ((CALIBRATION, BOTH), False, True, ""),
        ((NOISE,), True, False, ""),
        ((NOISE, CALIBRATION, NAVIGATION), True, False, ""),
        ((NAVIGATION,), False, False, "navigation"),
        ((NAVIGATION, PHASE_CORRECTION), False, False, "navigation"),
        ((PHASE_CORRECTION, CALIBRATION), False, False, "phase correction"),
        ((ismrmrd.ACQ_IS_HPFEEDBACK_DATA,), False, False, "feedback"),
        ((ismrmrd.ACQ_IS_RTFEEDBACK_DATA,), False, False, "feedback"),
        ((ismrmrd.ACQ_IS_DUMMYSCAN_DATA,), False, False, "dummy"),
        ((ismrmrd.ACQ_IS_SURFACECOILCORRECTIONSCAN_DATA,), False, False, "surface coil correction"),
        ((ismrmrd.ACQ_IS_PHASE_STABILIZATION_REFERENCE,), False, False, "phase stabilisation"),
        ((ismrmrd.ACQ_IS_PHASE_STABILIZATION,), False, False, "phase stabilisation"),
    ],
)
def test_what_a_readout_is_used_for(flags, noise, in_image, reason):
    found = classify(bits(*flags))
    assert (found.noise, found.in_image, found.reason) == (noise, in_image, reason)
    assert found.calibration_only == (CALIBRATION in flags and BOTH not in flags)


def test_ends_and_directions():
    names = ("reverse", "phase_correction", "last_in_slice", "last_in_repetition", "last_in_measurement")
    flags = (
        ismrmrd.ACQ_IS_REVERSE,
        PHASE_CORRECTION,
        ismrmrd.ACQ_LAST_IN_SLICE,
        ismrmrd.ACQ_LAST_IN_REPETITION,
        ismrmrd.ACQ_LAST_IN_MEASUREMENT,
    )
    for name, flag in zip(names, flags, strict=True):
        assert [other for other in names if getattr(classify(bits(flag)), other)] == [name]
    assert not classify(bits(NOISE, PHASE_CORRECTION)).phase_correction


def test_many_are_as_one_by_one():
    each = [bits(*some) for count in range(3) for some in itertools.combinations(range(1, 65), count)]
    together = classify_all(np.array(each, np.uint64))
    for name, column in together.items():
        assert column.tolist() == [getattr(classify(flags), name) for flags in each], name
    assert all(len(column) == 0 for column in classify_all(np.zeros(0, np.uint64)).values())


def test_calibration_is_separate_if_declared_or_shorter():
    assert calibration_is_separate(True, 16, 16)
    assert calibration_is_separate(False, 15, 16)
    assert not calibration_is_separate(False, 16, 16)
    assert not calibration_is_separate(False, 17, 16)
