import pytest

from upmri.core.frame_places import of_slices, places


@pytest.mark.parametrize(
    ("meta", "count", "expected"),
    [
        ({"axes": {"frame": 3, "slice": 2}}, 6, [0, 1, 0, 1, 0, 1]),
        ({"axes": {"slice": 2, "repetition": 3}}, 6, [0, 0, 0, 1, 1, 1]),
        ({"axes": {"time": 4}}, 4, [0, 0, 0, 0]),
        ({"axes": {"phase": 2, "readout": 3}}, 6, [0, 1, 2, 0, 1, 2]),
        ({"frames": [{"slice": 4, "phase": 0}, {"slice": 4, "phase": 1}, {"slice": 7, "phase": 0}]}, 3, [0, 0, 1]),
        ({"axes": {"slice": 6}}, 6, None),
        ({"axes": {"frame": 3, "slice": 2}}, 5, None),  # some slices of a file
        ({"axes": "frame"}, 2, None),
        ({"axes": {"frame": "3"}}, 3, None),
        ({"frames": [1, 2]}, 2, None),
        ({"frames": [{"slice": [0]}, {"slice": [0]}]}, 2, None),
        ({"axes": {}}, 1, None),
        ({}, 4, None),
    ],
)
def test_places(meta, count, expected):
    assert places(meta, count) == expected


def test_a_part_of_a_dynamic_scan_names_its_frames():
    meta = {"axes": {"phase": 3, "slice": 2}, "x": 1}
    assert of_slices(meta, 6, range(1, 6, 2)) == {"frames": [{"phase": p, "slice": 1} for p in range(3)], "x": 1}
    assert of_slices(of_slices(meta, 6, range(4)), 4, range(0, 4, 2)) == {
        "frames": [{"phase": p, "slice": 0} for p in range(2)],
        "x": 1,
    }
    assert of_slices(meta, 6, range(6)) is meta
    assert of_slices({"axes": {"slice": 6}}, 6, range(2)) == {"axes": {"slice": 6}}


def test_frames_that_are_listed_stay_those_of_the_slices():
    """Also where a part sees no place twice, and parts of it."""
    meta = {"axes": {"phase": 3, "slice": 2}}
    one_each = of_slices(meta, 6, range(2))
    assert places(one_each, 2) is None
    assert of_slices(one_each, 2, range(1, 2)) == {"frames": [{"phase": 0, "slice": 1}]}
