from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri.core.errors import InputError
from upmri.physics.masks import calibration_region, poisson_disc
from upmri.physics.plane_masks import caipi, default_block, ellipse, lattice_steps, plane_mask, separable


def point_spread(mask):
    return torch.fft.ifft2(torch.fft.ifftshift(mask.float())).abs()


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), height=st.integers(2, 6), width=st.integers(2, 6))
def test_a_lattice_folds_as_many_pixels_as_its_acceleration(rows, columns, height, width):
    """N of a full lattice with one coil mixes R₁R₂ pixels: its point spread has that many peaks of 1/(R₁R₂)."""
    for shift in range(columns):
        # Shifts repeat after R₁R₂ rows: the grid is a whole number of lattice cells.
        shape = (rows * columns * height, columns * width)
        mask = caipi(shape, (rows, columns), shift)
        assert mask[shape[0] // 2, shape[1] // 2]
        assert int(mask.sum()) * rows * columns == mask.numel()
        spread = point_spread(mask)
        peaks = spread > 1e-6
        assert int(peaks.sum()) == rows * columns
        torch.testing.assert_close(spread[peaks], torch.full((rows * columns,), 1 / (rows * columns)))


def test_shifts_move_copies_apart():
    """2×2: without a shift copies lie half a field of view away along one axis; with it the nearest are diagonal."""
    plain, shifted = (point_spread(caipi((16, 12), (2, 2), shift)) > 1e-6 for shift in (0, 1))
    assert {tuple(at) for at in plain.nonzero().tolist()} == {(0, 0), (8, 0), (0, 6), (8, 6)}
    assert {tuple(at) for at in shifted.nonzero().tolist()} == {(0, 0), (8, 0), (4, 6), (12, 6)}


@pytest.mark.parametrize("pattern", ["poisson", "caipi", "separable"])
@pytest.mark.parametrize("elliptic", [False, True])
def test_every_pattern_has_its_block_and_its_acceleration(pattern, elliptic):
    mask = plane_mask(pattern, (64, 50), 4, 12, elliptic=elliptic, seed=1)
    rows, columns = calibration_region(mask, 64)
    assert rows.stop - rows.start >= 12
    assert columns.stop - columns.start >= 12
    assert bool(mask[26:38, 19:31].all())
    if elliptic:
        assert not bool((mask & ~ellipse((64, 50))).any())
    if pattern == "poisson" or not elliptic:
        rate = float(1 / mask.float().mean())
        assert rate == pytest.approx(4, rel=0.01) if pattern == "poisson" else 3.4 < rate < 4.2


def test_poisson_points_keep_their_distance_within_an_ellipse():
    shape = (60, 60)
    mask = poisson_disc(shape, 10, (8, 8), within=ellipse(shape), seed=2)
    assert int(mask.sum()) == 360
    block = torch.zeros(shape, dtype=torch.bool)
    block[26:34, 26:34] = True
    points = (mask & ~block).nonzero().float()
    distances = torch.cdist(points, points) + torch.eye(len(points)) * 1e9
    assert float(distances.min()) >= math.sqrt(2)  # at this rate no two points are neighbours
    near = (points - 30).norm(dim=1) < 15
    assert float(distances[near].amin(1).mean()) < float(distances[~near].amin(1).mean())  # density falls outwards


def test_separable_masks_are_products():
    mask = separable((40, 36), 4, (10, 8), seed=0)
    rows, columns = mask.any(1), mask.any(0)
    assert torch.equal(mask, rows[:, None] & columns)
    assert (int(rows.sum()), int(columns.sum())) == (20, 18)


def test_a_seed_may_be_an_integer_of_numpy():
    for pattern in ("poisson", "separable"):
        first, again = (plane_mask(pattern, (32, 30), 4, 6, seed=seed) for seed in (2, np.int64(2)))
        assert torch.equal(first, again)


def test_an_ellipse_has_the_area_of_an_ellipse():
    shape = (192, 160)
    assert float(ellipse(shape).float().mean()) == pytest.approx(math.pi / 4, rel=0.01)
    assert torch.equal(ellipse(shape), ellipse(shape).flip(0).flip(1))


def test_lattices_are_near_squares():
    assert [lattice_steps(n) for n in (1, 4, 6, 8, 9, 7)] == [(1, 1), (2, 2), (2, 3), (2, 4), (3, 3), (1, 7)]
    with pytest.raises(InputError, match="whole"):
        lattice_steps(2.5)


def test_wrong_requests_are_refused():
    with pytest.raises(InputError):
        caipi((8, 8), (2, 2), shift=2)
    with pytest.raises(InputError):
        caipi((8, 8), (0, 2))
    for pattern in ("poisson", "caipi", "separable"):
        for rate in (0, 0.5, math.nan):
            with pytest.raises(InputError, match=f"got {rate}"):
                plane_mask(pattern, (8, 8), rate)
    with pytest.raises(InputError):
        plane_mask("spiral", (8, 8), 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="may be sampled"):
        poisson_disc((8, 8), 1.5, within=torch.zeros(8, 8, dtype=torch.bool))


def test_the_usual_block_is_at_most_a_quarter_of_the_samples():
    assert default_block((192, 160), 8) == 24
    assert default_block((48, 48), 8) == 8
