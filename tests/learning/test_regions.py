"""The centre and the calibration region of masks of lines and of points."""

import torch

from upmri.learning.regions import calibration, centre, draw_per_slice, outside_calibration
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


def lines(width, *sampled):
    mask = torch.zeros(1, width, dtype=torch.bool)
    mask[0, list(sampled)] = True
    return mask


def block():
    """3×4 points around DC and one at the corner."""
    mask = torch.zeros(9, 12, dtype=torch.bool)
    mask[3:6, 4:8] = True
    mask[0, 0] = True
    return mask


def test_the_centre_is_four_lines_or_4_by_4_points():
    """Sampled or not; in the order of a centred transform, DC is at n // 2."""
    assert centre(lines(12, 1)).nonzero()[:, 1].tolist() == [4, 5, 6, 7]
    assert centre(lines(13, 1)).nonzero()[:, 1].tolist() == [4, 5, 6, 7]
    inside = centre(block())
    assert inside.shape == (9, 12)
    assert inside.sum() == 16
    assert inside[2:6, 4:8].all()


def test_the_centre_of_few_lines_is_all_of_them():
    assert centre(lines(4, 1)).all()


def test_the_calibration_region_is_the_run_of_lines_around_dc():
    mask = lines(12, 1, 5, 6, 7, 10)
    assert calibration(mask, 9).nonzero()[:, 1].tolist() == [5, 6, 7]
    assert torch.equal(calibration(block(), 9), block() & (torch.arange(9)[:, None] > 0))


def test_without_dc_there_is_no_calibration_region():
    assert not calibration(lines(12, 1, 5, 10), 9).any()


def test_outside_calibration_is_the_rest():
    mask = lines(12, 1, 5, 6, 7, 10)
    assert outside_calibration(mask, 9)[0].tolist() == [True] * 5 + [False] * 3 + [True] * 4
    assert torch.equal(~outside_calibration(block(), 9), block() & (torch.arange(9)[:, None] > 0))


def test_where_all_lines_are_calibration_lines_it_is_the_rest_of_the_centre():
    full = torch.ones(1, 12, dtype=torch.bool)
    assert outside_calibration(full, 9)[0].tolist() == [True] * 4 + [False] * 4 + [True] * 4


def test_a_mask_that_shares_memory_is_not_changed():
    mask = lines(12, 5, 6, 7).expand(9, -1)
    before = mask.clone()
    for region in (centre(mask), calibration(mask, 9), outside_calibration(mask, 9)):
        assert region.shape == (9, 12)
    assert torch.equal(mask, before)


def test_every_slice_is_drawn_with_its_own_mask_and_generator(rng):
    masks = torch.stack([lines(12, 5, 6, 7), lines(12, 1, 6)])
    problem = Problem(SenseOperator(rng(2, 1, 9, 12), masks), rng(2, 1, 9, 12), seeds=(3, 4))
    calls = draw_per_slice(lambda *call: call, problem)
    for (mask, readout, generator), expected, seed in zip(calls, masks, (3, 4), strict=True):
        assert torch.equal(mask, expected)
        assert readout == 9
        assert generator.initial_seed() == seed
