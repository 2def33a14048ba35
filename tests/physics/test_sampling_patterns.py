from __future__ import annotations

import pytest
import torch

from upmri.physics.masks import equispaced, poisson_disc, random_lines
from upmri.physics.plane_masks import caipi, plane_mask
from upmri.physics.sampling_patterns import describe_mask

SHAPE = (96, 80)


@pytest.mark.parametrize("elliptic", [False, True])
@pytest.mark.parametrize(
    ("pattern", "rate", "words"),
    [
        ("poisson", 8, "Poisson discs"),
        ("poisson", 4, "Poisson discs"),
        ("caipi", 4, "2×2 CAIPI lattice, shift 1"),
        ("caipi", 6, "2×3 CAIPI lattice, shift 1"),
        ("caipi", 8, "2×4 CAIPI lattice, shift 2"),
        ("separable", 4, "random rows times random columns"),
    ],
)
def test_patterns_are_recognised(pattern, rate, words, elliptic):
    mask = plane_mask(pattern, SHAPE, rate, 16, elliptic=elliptic, seed=1)
    assert describe_mask(mask, 96) == words + (", elliptic shutter" if elliptic else "")


def test_lattices_without_a_shift_and_random_points():
    assert describe_mask(caipi(SHAPE, (3, 2), 0, (12, 12)), 96) == "3×2 regular lattice"
    points = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)) < 0.2
    points[42:54, 34:46] = True
    assert describe_mask(points, 96) == "random points"
    assert describe_mask(poisson_disc(SHAPE, 6, seed=1), 96) == "Poisson discs"  # no block


def test_lines():
    assert describe_mask(random_lines(80, 4, seed=0), 96) == "random lines"
    assert describe_mask(equispaced(80, 4, 12), 96) == "every 4th line"
    assert describe_mask(equispaced(80, 4, 12).expand(96, 80), 96) == "every 4th line"
    assert describe_mask(equispaced(96, 3, 0).T.expand(96, 80), 96) == "every 3rd line along the first phase encoding"
    assert describe_mask(torch.ones(1, 80), 96) == "all of k-space"
    part = torch.ones(1, 80)
    part[:, 60:] = 0
    assert describe_mask(part, 96) == "lines 0 to 59 of 80"
    lines = equispaced(80, 2, 0)
    lines[:, 78:] = 0
    assert describe_mask(lines, 96) == "every 2nd line"  # though the last is missing
    read = torch.zeros(96, 1, dtype=torch.bool)
    read[3:90] = True
    assert describe_mask(read & lines, 96) == "every 2nd line, samples 3 to 89 of 96 along the first axis"
    assert describe_mask(read.expand(96, 80), 96) == "all lines, samples 3 to 89 of 96 along the first axis"
