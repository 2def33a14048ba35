"""Sampling patterns, against a search point by point."""

import pytest
import torch

from upmri import InputError
from upmri.physics.masks import equispaced
from upmri.physics.patterns import find_patterns


def around(mask, row, column, reach, most):
    """Positions of the window around a point that were sampled, the nearest first, by their coordinates."""
    h, w = mask.shape
    found = [
        (i * i + j * j, i, j)
        for i in range(-reach[0], reach[0] + 1)
        for j in range(-reach[1], reach[1] + 1)
        if 0 <= row + i < h and 0 <= column + j < w and mask[row + i, column + j]
    ]
    return sorted((row + i, column + j) for _, i, j in sorted(found)[:most])


@pytest.mark.parametrize("most", [3, 99])
def test_points_are_grouped_by_the_samples_around_them(most):
    mask = torch.rand(9, 11, generator=torch.Generator().manual_seed(0)) < 0.3
    reach, wide = (2, 3), 11 + 6
    seen = {}
    for patterns in find_patterns(mask, 9, reach, most):
        for (point,), neighbours in zip(patterns.points.tolist(), patterns.neighbours(11)[:, 0].tolist(), strict=True):
            seen[divmod(point, 11)] = sorted((at // wide - 2, at % wide - 3) for at in neighbours)
    expected = {(i, j): around(mask, i, j, reach, most) for i in range(9) for j in range(11) if not mask[i, j]}
    assert seen == {at: found for at, found in expected.items() if found}


def test_regular_lines_have_one_pattern_for_each_offset():
    mask = torch.zeros(1, 30, dtype=torch.bool)
    mask[0, ::3] = True
    (patterns,) = [one for one in find_patterns(mask, 5, (1, 5), 4) if one.positions.shape[1] == 4 * 3]
    columns = (patterns.positions % 11 - 5).unique(dim=1)
    assert {tuple(sorted(set(one))) for one in columns.tolist()} == {(-4, -1, 2, 5), (-5, -2, 1, 4)}
    assert patterns.points.shape[1] == 5  # a line with all its rows


def test_parts_are_the_whole():
    mask = equispaced(24, 4, 6)
    (first, *rest) = find_patterns(mask, 3, (1, 7), 4)
    for patterns in (first, *rest):
        parts = list(patterns.split(1))
        assert torch.equal(torch.cat([part.positions for part in parts]), patterns.positions)
        order = torch.cat([part.points for part in parts]).sort(0).values
        assert torch.equal(order, patterns.points.sort(0).values)


def test_a_window_that_is_too_large_is_refused():
    with pytest.raises(InputError) as error:
        next(find_patterns(torch.zeros(9, 9, dtype=torch.bool), 9, (4, 4), 6))
    assert error.value.field == "reach"
