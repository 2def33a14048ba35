"""Focal spots: discs on an even background are found; lines, edges and faint things are not."""

import math

import pytest
import torch

from upmri import InputError
from upmri.evaluation.focal_spots import focal_spots
from upmri.evaluation.lesions import disc

SIZE = (160, 160)


def brain() -> torch.Tensor:
    """An even disc that fills most of the image."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, n, dtype=torch.float64) for n in SIZE], indexing="ij")
    return 0.5 * (torch.hypot(y, x) < 0.95).double()


def test_discs_are_found():
    truth = {(60, 60): (6, 0.5), (90, 100): (10, 0.4), (110, 70): (4, 0.8)}
    image = brain()
    for (row, column), (diameter, contrast) in truth.items():
        image += 0.5 * contrast * disc(SIZE, row, column, diameter)
    found = focal_spots(100 * image)
    assert len(found) == 3
    for spot in found:
        at = min(truth, key=lambda place: math.hypot(place[0] - spot.row, place[1] - spot.column))
        diameter, contrast = truth[at]
        assert math.hypot(at[0] - spot.row, at[1] - spot.column) <= 1.5
        assert abs(spot.diameter - diameter) <= 2
        assert 0.6 * contrast < spot.contrast <= contrast
    assert [spot.contrast for spot in found] == sorted((spot.contrast for spot in found), reverse=True)


def test_what_is_no_spot():
    assert focal_spots(brain()) == []
    line, edge, faint, shallow = (brain() for _ in range(4))
    line[78:82] *= 1.6
    edge[:80] *= 1.6
    faint += 0.5 * 0.15 * disc(SIZE, 80, 80, 6)
    shallow += 0.5 * 0.8 * disc(SIZE, 80, 12, 6)
    assert [focal_spots(image) for image in (line, edge, faint, shallow)] == [[], [], [], []]


def test_of_two_that_overlap_one_is_kept():
    image = brain() + 0.4 * disc(SIZE, 80, 80, 6) + 0.2 * disc(SIZE, 80, 83, 8)
    assert len(focal_spots(image)) == 1


def test_wrong_input():
    with pytest.raises(InputError) as error:
        focal_spots(torch.ones(2, 8, 8))
    assert error.value.field == "magnitude"
