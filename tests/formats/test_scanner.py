"""What a header says about the scanner, whatever it says."""

import pytest

from upmri.formats.scanner import echo_times, known_facts, scanner_facts


def test_only_what_makes_sense_is_kept():
    found = scanner_facts(
        vendor=" A\nB ", model="x" * 99, field_strength=1e9, echo_time=[None, 0, 3.0], repetition_time=True
    )
    assert found == {"vendor": "A B", "model": "x" * 64, "echo_time": [3.0]}
    assert scanner_facts() == {}


@pytest.mark.parametrize("meta", [{}, {"scanner": 1}, {"scanner": {"echo_time": 4}}])
def test_nothing_is_known(meta):
    assert known_facts(meta) == {}
    assert echo_times(meta, 2) == [None, None]


def test_one_time_is_that_of_all_slices():
    assert echo_times({"scanner": {"echo_time": [4]}}, 3) == [4.0, 4.0, 4.0]


def test_times_by_axes_and_by_frames():
    scanner = {"echo_time": [4.0, 8.0]}
    axes = {"repetition": 2, "contrast": 2, "slice": 2}
    assert echo_times({"scanner": scanner, "axes": axes}, 8) == [4, 4, 8, 8] * 2
    frames = [{"contrast": 1}, {"contrast": 0}, {"contrast": 5}]
    assert echo_times({"scanner": scanner, "frames": frames}, 3) == [8, 4, None]
    assert echo_times({"scanner": scanner, "axes": {"slice": 3}}, 3) == [None] * 3  # which echo it is, is not known
    assert echo_times({"scanner": scanner, "frames": [{"slice": 1}]}, 1) == [None]
    assert echo_times({"scanner": scanner, "frames": [{"echo": 1}, {"echo": 1.0}]}, 2) == [None, None]
    assert echo_times({"scanner": scanner, "axes": {"echo": 2}}, 4) == [None] * 4  # of other slices
