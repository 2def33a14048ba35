"""Lines of dynamic scans: exact numbers, calibration lines, and frames that complement each other."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from upmri.core.errors import InputError
from upmri.physics import frame_lines
from upmri.physics.masks import centre_lines

PATTERNS = ("random", "interleaved", "variable")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("width", "rate", "acs"), [(64, 8, 0), (63, 4, 6), (192, 12, 4), (96, 1.5, 8), (20, 2, 0)])
def test_every_frame_has_the_number_of_lines_and_its_calibration_lines(pattern, width, rate, acs):
    mask = frame_lines(pattern, 7, width, rate, acs, seed=3)
    assert mask.shape == (7, 1, width)
    assert mask.dtype == torch.bool
    assert (mask.sum((1, 2)) == round(width / rate)).all()
    assert mask[:, centre_lines(width, acs)].all()


@pytest.mark.parametrize("acs", [0, 8])
def test_interleaved_frames_have_every_line_once_in_a_period(acs):
    mask = frame_lines("interleaved", 8, 64 + acs, (64 + acs) / (8 + acs), acs)
    outer = mask[:, ~centre_lines(64 + acs, acs)]
    assert (outer.sum(0) == 1).all()


def test_interleaved_lines_are_equidistant():
    (lines,) = frame_lines("interleaved", 1, 64, 8)[0]
    assert lines.nonzero().flatten().diff().unique().tolist() == [8]


def test_neighbouring_frames_of_variable_density_have_few_lines_in_common():
    mask = frame_lines("variable", 16, 192, 8)[:, 0]
    assert max(int((a & b).sum()) for a, b in pairwise(mask)) <= 2
    assert mask.any(0).float().mean() > 0.85


def test_variable_density_is_higher_near_the_centre():
    density = frame_lines("variable", 200, 128, 8, seed=1)[:, 0].float().mean(0)
    middle, edges = density[48:80].mean(), torch.cat([density[:16], density[-16:]]).mean()
    assert 3 < middle / edges < 8  # (0.77² to 1 + 0.15)/(0 to 0.06 + 0.15) on average


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_seed_decides(pattern):
    first, again, other = (frame_lines(pattern, 4, 96, 6, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(frame_lines(pattern, 4, 96, 6, seed=np.int64(1)), first)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pattern": "spiral"}, "pattern"),
        ({"frames": 0}, "frames"),
        ({"acs": 40}, "acs"),
        ({"acceleration": 0.5}, "acceleration"),
    ],
)
def test_wrong_requests(changes, field):
    with pytest.raises(InputError) as error:
        frame_lines(**{"pattern": "interleaved", "frames": 3, "width": 32, "acceleration": 4} | changes)
    assert error.value.field == field
