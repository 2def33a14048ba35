import pytest
import torch

import upmri
from upmri.physics.frames import average_over_time, places


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


def test_the_average_counts_samples_only_where_there_are_some(rng):
    kspace = rng(3, 2, 4, 6, dtype=torch.complex64)
    mask = torch.tensor([[1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0]], dtype=torch.bool)[:, None]
    scan = upmri.Scan(kspace=kspace * mask[:, None], mask=mask)
    found, taken = average_over_time(scan, [0, 0, 1])
    assert torch.allclose(found[0][..., 0], kspace[:2, ..., 0].mean(0))
    assert torch.equal(found[0][..., 1], kspace[0, ..., 1])
    assert torch.equal(found[1], scan.kspace[2])
    assert taken[:, 0].tolist() == [[True, True, True, False, True, False], [False, True, False, True, True, False]]
