import pytest
import torch

import upmri
from upmri.physics.frames import average_over_time, of_slices, places


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


def test_the_average_counts_samples_only_where_there_are_some(rng):
    kspace = rng(3, 2, 4, 6, dtype=torch.complex64)
    mask = torch.tensor([[1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0]], dtype=torch.bool)[:, None]
    scan = upmri.Scan(kspace=kspace * mask[:, None], mask=mask)
    found, taken = average_over_time(scan, [0, 0, 1])
    assert torch.allclose(found[0][..., 0], kspace[:2, ..., 0].mean(0))
    assert torch.equal(found[0][..., 1], kspace[0, ..., 1])
    assert torch.equal(found[1], scan.kspace[2])
    assert taken[:, 0].tolist() == [[True, True, True, False, True, False], [False, True, False, True, True, False]]
