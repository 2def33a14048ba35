"""Frames that are kept for their place: when a place is complete, and how much memory they may use."""

from __future__ import annotations

import ismrmrd
import pytest

from upmri.server.assemble import Assembler, Frame, Rows
from upmri.server.limits import Limits, RefusedError
from upmri.server.together import KeptFrames, distinct_parts

LAST, CALIBRATION, LINE = ismrmrd.ACQ_LAST_IN_SLICE, ismrmrd.ACQ_IS_PARALLEL_CALIBRATION, 340 + 8 * 2 * 16
NOISE = ismrmrd.ACQ_IS_NOISE_MEASUREMENT
PHASES = "<phase><minimum>0</minimum><maximum>2</maximum></phase>"
SEPARATE = "<parallelImaging><calibrationMode>separate</calibrationMode></parallelImaging>"


@pytest.fixture
def stream(make_head):
    """``stream(xml, keys, …)``: the sorting, the frames that are kept, and the places that are complete."""

    def run(xml, keys, limits=None, calibration=False, noise=0):
        limits = limits or Limits()
        lines = Assembler(xml, limits)
        kept, found = KeptFrames(lines, limits), []

        def add(line, flags, repetition, phase, number):
            head = make_head(line, flags=flags, repetition=repetition, phase=phase, slice=number)
            for frame in lines.add(ismrmrd.AcquisitionHeader.from_buffer_copy(head), bytes(8 * 2 * 16)):
                found.append(kept.add(frame))

        for _ in range(noise):
            add(0, (NOISE,), 0, 0, 0)
        for line in range(3) if calibration else ():
            add(line, (CALIBRATION,), 0, 0, 0)
        for key in keys:
            for line in (0, 1):
                add(line, (LAST,) if line else (), *key)
        return lines, kept, [place for place in found if place is not None]

    return run


def keys(places):
    return [[frame.key for frame in place.frames] for place in places]


def test_places_are_complete_at_the_end_and_in_the_order_of_time(stream, make_xml):
    lines, kept, places = stream(make_xml(), [(1, 0, 4), (0, 0, 4), (0, 1, 2), (0, 0, 2), (1, 1, 4)])
    assert not places
    assert lines.held == 10 * LINE
    rest = list(kept.rest())
    assert keys(rest) == [
        [(0, 0, 0, 0, 2), (0, 1, 0, 0, 2)],
        [(0, 0, 0, 0, 4), (1, 0, 0, 0, 4), (1, 1, 0, 0, 4)],
    ]
    assert [place.nbytes for place in rest] == [4 * LINE, 6 * LINE]
    assert lines.held == 0


def test_a_place_is_complete_with_the_frames_that_the_header_names(stream, make_xml):
    lines, kept, places = stream(
        make_xml(limits=PHASES), [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 2, 0), (0, 1, 1), (1, 2, 0)]
    )
    assert keys(places) == [[(0, phase, 0, 0, 0) for phase in range(3)]]
    assert lines.late == 2  # of the second repetition, which the header does not have
    assert lines.held == 4 * LINE
    assert keys(kept.rest()) == [[(0, phase, 0, 0, 1) for phase in range(2)]]
    assert lines.held == 0


def test_noise_readouts_count_in_every_frame(stream, make_xml):
    each = 8 * 3 * 16 * 64
    xml, several = make_xml(lines=64), [(number, 0, 0) for number in range(4)]
    stream(xml, several, Limits(held_bytes=4 * (each + 5 * 64)), noise=5)
    with pytest.raises(RefusedError, match="bytes of 4 frames of one place"):
        stream(xml, several, Limits(held_bytes=4 * (each + 5 * 64) - 1), noise=5)


@pytest.mark.parametrize("frames", [5, 6])
def test_kept_readouts_count_as_memory(stream, make_xml, frames):
    """More bytes than are allowed are refused while the last frame still comes: 2048 bytes are an open frame itself."""
    limit = Limits(held_bytes=2048 + 10 * LINE)
    several = [(0, 0, number) for number in range(frames)]  # of as many places
    if frames == 5:
        assert stream(make_xml(), several, limit)[0].held == 10 * LINE
        return
    with pytest.raises(RefusedError, match=r"not complete, and of frames kept for their place: .* \(held_bytes\)") as e:
        stream(make_xml(), several, limit)
    assert e.value.code == "limit:held_bytes"


def test_the_k_space_of_a_place_must_fit_into_memory(stream, make_xml):
    """A line of each frame is little, but a worker lays all frames on their grid."""
    each = 8 * 3 * 16 * 64
    xml, limit = make_xml(lines=64), Limits(held_bytes=4 * each)
    stream(xml, [(number, 0, 0) for number in range(4)], limit)
    stream(xml, [(number // 2, 0, number % 2) for number in range(8)], limit)  # two places
    with pytest.raises(RefusedError, match=r"bytes of 5 frames of one place, all coils: .* \(held_bytes\)") as caught:
        stream(xml, [(number, 0, 0) for number in range(5)], limit)
    assert caught.value.code == "limit:held_bytes"


def test_the_number_of_frames_is_limited(stream, make_xml):
    with pytest.raises(RefusedError, match=r"frames kept for a method over time: 4 .* \(frames\)"):
        stream(make_xml(), [(0, 0, number) for number in range(4)], Limits(frames=3))


def test_calibration_lines_that_frames_share_count_once(stream, make_xml):
    lines, kept, _ = stream(make_xml(more=SEPARATE), [(number, 0, 0) for number in range(3)], calibration=True)
    [place] = kept.rest()
    assert place.nbytes == (3 + 6) * LINE
    readouts, parts = distinct_parts(place.frames)
    assert [len({part[i] for part in parts}) for i in range(3)] == [1, 3, 3]
    assert sum(rows.nbytes for rows in readouts) == place.nbytes
    assert lines.held == 3 * LINE  # the calibration lines, which another frame of the slice would need


def test_the_parts_of_a_frame_alone():
    frame = Frame((0,) * 5, 0, *(Rows(bodies=[name]) for name in (b"rows", b"calibration", b"navigators")))
    readouts, parts = distinct_parts(frame.frames)
    assert [rows.bodies for rows in readouts] == [[b"calibration"], [b"navigators"], [b"rows"]]
    assert parts == [[0, 1, 2]]
    assert frame.where == "slice 0"
    assert Frame((2, 0, 0, 1, 3), 0).where == "repetition 2, contrast 1, slice 3"
