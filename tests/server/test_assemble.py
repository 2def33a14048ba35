from __future__ import annotations

import ismrmrd
import pytest

from upmri import InputError
from upmri.server.assemble import Assembler
from upmri.server.limits import Limits, RefusedError

NOISE, CALIBRATION, BOTH, LAST, LAST_REPETITION, LAST_MEASUREMENT = 19, 20, 21, 8, 14, 25
SEPARATE = "<parallelImaging><calibrationMode>separate</calibrationMode></parallelImaging>"


@pytest.fixture
def add(make_head):
    """``add(assembler, line, …)``: the keys of the frames that a readout completes."""

    def put(lines, line=0, coils=2, samples=16, flags=(), **more):
        head = ismrmrd.AcquisitionHeader.from_buffer_copy(make_head(line, coils, samples, flags, **more))
        return lines.add(head, bytes(8 * coils * samples))

    return put


def keys(frames):
    return [frame.key for frame in frames]


def test_the_last_of_a_slice_completes_it(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    assert not add(lines, 0)
    assert not add(lines, 0, slice=1)
    [frame] = add(lines, 4, flags=(LAST,))
    assert (frame.key, len(frame.rows.bodies)) == ((0, 0, 0, 0, 0), 2)
    assert keys(lines.rest()) == [(0, 0, 0, 0, 1)]
    assert lines.held == 0


def test_all_lines_complete_a_slice_but_not_before_all_averages(add, make_xml):
    lines = Assembler(make_xml(lines=3), Limits())
    assert [len(add(lines, line)) for line in (2, 0, 0, 1)] == [0, 0, 0, 1]
    twice = Assembler(make_xml(lines=3, limits="<average><maximum>1</maximum></average>"), Limits())
    done = [len(add(twice, line, average=k, flags=(LAST,) if line == 2 else ())) for k in (0, 1) for line in range(3)]
    assert done == [0, 0, 0, 0, 0, 1]


def test_calibration_lines_complete_nothing(add, make_xml):
    lines = Assembler(make_xml(lines=3), Limits())
    assert not add(lines, 0, flags=(CALIBRATION, LAST, LAST_MEASUREMENT))
    assert not add(lines, 1)
    assert not add(lines, 2, flags=(CALIBRATION,))
    assert not add(lines, 2, flags=(CALIBRATION, BOTH))
    [frame] = add(lines, 0)
    assert (len(frame.rows.bodies), len(frame.calibration.bodies)) == (3, 2)


def test_ends_of_repetition_and_measurement(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    for repetition, number in ((0, 0), (0, 1), (1, 0)):
        add(lines, 0, repetition=repetition, slice=number)
    assert keys(add(lines, 1, slice=1, flags=(LAST_REPETITION,))) == [(0, 0, 0, 0, 0), (0, 0, 0, 0, 1)]
    add(lines, 0, repetition=1, slice=1)
    # A navigator that comes last is not of the image, but it is the last.
    assert len(add(lines, 0, repetition=1, flags=(23, LAST_MEASUREMENT))) == 2
    assert list(lines.rest()) == []


def test_volumes_end_with_their_last_line_or_repetition(add, make_xml):
    lines = Assembler(make_xml(lines=2, partitions=2), Limits())
    assert not add(lines, 0, flags=(LAST,))
    assert not add(lines, 1, flags=(LAST,))
    assert not add(lines, 0, kspace_encode_step_2=1)
    assert len(add(lines, 1, kspace_encode_step_2=1)) == 1


def test_calibration_apart_serves_all_frames_of_a_slice_and_the_first_counts(add, make_xml):
    lines = Assembler(make_xml(more=SEPARATE), Limits())
    add(lines, 3, flags=(CALIBRATION,))
    add(lines, 4, flags=(CALIBRATION,), slice=1)
    add(lines, 4, flags=(CALIBRATION,))
    frames = [add(lines, 0, flags=(LAST,), repetition=r)[0] for r in range(2)]
    add(lines, 5, flags=(CALIBRATION,))
    frames += add(lines, 0, flags=(LAST,), repetition=2)
    assert [len(frame.calibration.bodies) for frame in frames] == [2, 2, 2]
    assert lines.late == 0


def test_short_calibration_lines_are_apart_too(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    add(lines, 3, samples=8, flags=(CALIBRATION,))
    frames = [add(lines, 0, flags=(LAST,), repetition=r)[0] for r in range(2)]
    assert [len(frame.calibration.bodies) for frame in frames] == [1, 1]


def test_calibration_of_the_same_acquisition_stays_with_its_frame(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    add(lines, 3, flags=(CALIBRATION,))
    frames = [add(lines, 0, flags=(LAST,), repetition=r)[0] for r in range(2)]
    assert [len(frame.calibration.bodies) for frame in frames] == [1, 0]
    assert lines.held == 0


def test_what_comes_too_late_is_counted(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    add(lines, 0, flags=(NOISE,))
    add(lines, 0, flags=(LAST,))
    add(lines, 1)
    add(lines, 0, flags=(NOISE,))
    assert (lines.late, len(lines.noise.bodies)) == (2, 1)


def test_other_encodings_are_not_the_image(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    add(lines, 0, flags=(CALIBRATION,), encoding_space_ref=1)
    add(lines, 0)
    add(lines, 1, encoding_space_ref=1)
    [frame] = lines.rest()
    assert (len(frame.rows.bodies), len(frame.calibration.bodies), lines.held) == (1, 0, 0)


def test_noise_is_kept_up_to_what_tells(add, make_xml):
    lines = Assembler(make_xml(), Limits())
    for _ in range(40):
        add(lines, 0, coils=64, samples=4096, flags=(NOISE,))
    assert lines.noise.nbytes <= 2**26 + 2**22
    assert lines.held == lines.noise.nbytes


@pytest.mark.parametrize(
    ("limit", "what", "code"),
    [
        ({"readouts": 3}, {}, "limit:readouts"),
        ({"frames": 3}, {}, "limit:frames"),
        ({"held_bytes": 4000}, {}, "limit:held_bytes"),
        ({}, {"encoding_space_ref": 1}, "data"),
        ({"matrix": 7}, {}, "limit:matrix"),
    ],
)
def test_limits(add, make_xml, limit, what, code):
    lines = Assembler(make_xml(), Limits(**limit))
    with pytest.raises(RefusedError) as caught:
        for number in range(10):
            add(lines, 0, slice=number, **what)
    assert caught.value.code == code


@pytest.mark.parametrize("xml", [b"", b"<a", b"<ismrmrdHeader/>", b"\xff\xfe", b"<!DOCTYPE a><ismrmrdHeader/>"])
def test_headers_that_are_none(xml):
    with pytest.raises(InputError, match="header"):
        Assembler(xml, Limits())
