from __future__ import annotations

import ctypes

import ismrmrd
import pytest

from upmri import InputError
from upmri.server.assemble import Assembler
from upmri.server.held import HeldSource, Known
from upmri.server.limits import Limits, RefusedError

NOISE, CALIBRATION = ismrmrd.ACQ_IS_NOISE_MEASUREMENT, ismrmrd.ACQ_IS_PARALLEL_CALIBRATION
BOTH, REVERSE = ismrmrd.ACQ_IS_PARALLEL_CALIBRATION_AND_IMAGING, ismrmrd.ACQ_IS_REVERSE
NAVIGATION, PHASE_CORRECTION = ismrmrd.ACQ_IS_NAVIGATION_DATA, ismrmrd.ACQ_IS_PHASECORR_DATA
LAST, LAST_REPETITION = ismrmrd.ACQ_LAST_IN_SLICE, ismrmrd.ACQ_LAST_IN_REPETITION
LAST_MEASUREMENT = ismrmrd.ACQ_LAST_IN_MEASUREMENT
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
    assert len(add(lines, 0, repetition=1, flags=(NAVIGATION, LAST_MEASUREMENT))) == 2
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
    with pytest.raises(InputError) as error:
        Assembler(xml, Limits())
    assert error.value.field == "header"


# --- files and streams ------------------------------------------------------------------------------------------------


class Readouts:
    """The same readouts, read as those of a file and sorted as those of a stream."""

    def __init__(self, make_head, xml: bytes, readouts: list[dict]) -> None:
        heads = [make_head(**one) for one in readouts]
        bodies = [bytes(8 * 2 * one.get("samples", 16)) for one in readouts]
        parsed = [ismrmrd.AcquisitionHeader.from_buffer_copy(head) for head in heads]
        self.lines = [head.idx.kspace_encode_step_1 for head in parsed]
        self.source = HeldSource(Known(xml), [(b"".join(heads), b"".join(bodies))])
        stream = Assembler(xml, Limits())
        self.frames = [frame for head, body in zip(parsed, bodies, strict=True) for frame in stream.add(head, body)]
        self.frames += list(stream.rest())
        self.stream_noise = stream.noise

    def of_file(self) -> dict[str, list[int]]:
        """The lines of each use."""
        source, calibration = self.source, self.source._table.calibration
        rows = {"noise": source._noise, "imaging": source._imaging[~calibration]}
        rows["calibration"] = source._imaging[calibration]
        return {name: sorted(self.lines[row] for row in numbers) for name, numbers in rows.items()}

    def of_stream(self) -> dict[str, list[int]]:
        """The lines of each use."""
        rows = {
            "noise": [self.stream_noise],
            "imaging": [frame.rows for frame in self.frames],
            "calibration": [frame.calibration for frame in self.frames],
        }
        return {name: sorted(line for one in some for line in lines_of(one)) for name, some in rows.items()}


def lines_of(rows) -> list[int]:
    size = ctypes.sizeof(ismrmrd.AcquisitionHeader)
    heads = [bytes(rows.heads[at : at + size]) for at in range(0, len(rows.heads), size)]
    return [ismrmrd.AcquisitionHeader.from_buffer_copy(head).idx.kspace_encode_step_1 for head in heads]


SINGLE = [(flag,) for flag in range(1, 65)]
PAIRS = [(a, b) for a in range(NOISE, 32) for b in range(a + 1, 32)]


@pytest.mark.parametrize("flags", [*SINGLE, *PAIRS], ids=str)
def test_a_file_and_a_stream_use_a_readout_for_the_same(make_head, make_xml, flags):
    """Line 5 has the flags; the lines after it are of the image."""
    more = [{"line": line, "repetition": 1} for line in (1, 2, 3)]
    both = Readouts(make_head, make_xml(), [{"line": 5, "flags": flags}, *more])
    assert both.of_file() == both.of_stream()


@pytest.mark.parametrize("mode", ["", SEPARATE])
@pytest.mark.parametrize("samples", [8, 16])
@pytest.mark.parametrize("calibrated", [0, 1])
def test_a_file_and_a_stream_agree_on_separate_calibration(make_head, make_xml, mode, samples, calibrated):
    """Calibration lines of one of two slices, before both."""
    readouts = [{"line": line, "flags": (CALIBRATION,), "samples": samples, "slice": calibrated} for line in (3, 4)]
    readouts += [{"line": line, "slice": number} for number in (0, 1) for line in (1, 2, 3)]
    both = Readouts(make_head, make_xml(more=mode), [*readouts, {"line": 1, "repetition": 1, "slice": calibrated}])
    separate = bool(mode) or samples < 16
    counts = {frame.key: len(frame.calibration.bodies) for frame in both.frames}
    assert both.source._separate == separate
    assert counts[0, 0, 0, 0, calibrated] == 2
    assert counts[1, 0, 0, 0, calibrated] == (2 if separate else 0)


def test_a_file_and_a_stream_use_the_same_reference_readouts(make_head, make_xml):
    """Those of the frame, or else of an earlier frame of its slice."""
    planar = [{"line": 9, "flags": (PHASE_CORRECTION, REVERSE), "slice": n} for n in (0, 1)]
    planar += [{"line": 8, "flags": (PHASE_CORRECTION,), "slice": 0}]
    planar += [{"line": line, "flags": (REVERSE,) if line % 2 else (), "slice": n} for n in (0, 1) for line in (1, 2)]
    planar += [{"line": line, "flags": (REVERSE,) if line % 2 else (), "repetition": 1} for line in (1, 2)]
    both = Readouts(make_head, make_xml(), planar)
    assert both.of_file() == both.of_stream()
    found = {frame.key: lines_of(frame.navigators) for frame in both.frames}
    assert found == {(0, 0, 0, 0, 0): [9, 8], (0, 0, 0, 0, 1): [9], (1, 0, 0, 0, 0): [9, 8]}
    numbers = both.source._navigators
    for key, lines in found.items():
        assert [both.lines[n] for n in numbers.number[numbers.of(key)]] == lines
