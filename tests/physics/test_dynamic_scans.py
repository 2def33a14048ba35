"""Simulated dynamic scans."""

import numpy as np
import pytest
import torch

from upmri.core.errors import InputError
from upmri.physics import SenseOperator, simulate_series
from upmri.physics.dynamic_scans import breath, shifted
from upmri.physics.frames import places


@pytest.fixture(scope="module")
def beats():
    """Eight frames of a disc that grows and shrinks in a body."""
    y, x = np.mgrid[-1:1:40j, -1:1:48j]
    body = 0.5 * (np.hypot(x, y) < 0.8)
    return np.stack([body + 0.5 * (np.hypot(x, y) < 0.25 + 0.1 * np.sin(np.pi * t / 4)) for t in range(8)])


def test_without_noise_the_data_are_those_of_the_reference(beats):
    scan = simulate_series(beats, coils=4, acceleration=3, noise=0, seed=1)
    expected = SenseOperator(scan.maps, scan.mask)(scan.reference)
    assert torch.allclose(scan.kspace, expected, atol=1e-6)
    assert (scan.maps == scan.maps[:1]).all()
    assert torch.allclose(scan.reference.abs(), torch.from_numpy(beats).float() * (scan.maps != 0).any(1), atol=1e-5)


def test_its_slices_are_frames_of_one_place(beats):
    scan = simulate_series(beats, coils=4, acceleration=3)
    assert places(scan.meta, len(scan)) == [0] * 8
    assert not torch.equal(scan.mask[0], scan.mask[1])


def test_noise_has_its_level(beats):
    full = simulate_series(beats, coils=4, acceleration=1, noise=0.1, seed=2)
    error = full.kspace - SenseOperator(full.maps, full.mask)(full.reference)
    assert error.abs().square().mean().sqrt() == pytest.approx(0.1, rel=0.02)


def test_breathing_moves_the_object_along_the_readout(beats):
    still, moved = (simulate_series(beats[:1].repeat(6, 0), coils=2, breathing=b, seed=3) for b in (0, 4))

    def centre(scan):
        image = scan.reference.abs()
        return (image.sum(2) * torch.arange(40)).sum(1) / image.sum((1, 2))

    expected = 4 * breath(6, torch.Generator().manual_seed(3))
    assert expected.std() > 0.5
    assert torch.allclose(centre(moved) - centre(still), expected, atol=0.05)


def test_a_seed_may_be_an_integer_of_numpy(beats):
    first, again = (simulate_series(beats[:2], coils=2, acceleration=2, seed=seed) for seed in (2, np.int64(2)))
    assert torch.equal(first.kspace, again.kspace)


def test_a_shift_by_whole_pixels_is_a_roll():
    image = torch.rand(3, 16, 5)
    found = shifted(image, torch.tensor([0.0, 2.0, -3.0]))
    expected = torch.stack([image[0], image[1].roll(2, 0), image[2].roll(-3, 0)])
    assert torch.allclose(found, expected, atol=1e-6)


def test_the_default_type_of_torch_changes_nothing_but_rounding(beats, double_by_default):
    expected = simulate_series(beats, coils=2, acceleration=3, breathing=2)
    double_by_default()
    found = simulate_series(beats, coils=2, acceleration=3, breathing=2)
    assert torch.equal(found.mask, expected.mask)
    assert torch.allclose(found.kspace, expected.kspace, atol=1e-5)


def test_breath_is_bounded():
    assert breath(50, torch.Generator().manual_seed(0)).abs().max() <= 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"noise": -1}, "noise"),
        ({"noise": None}, "noise"),
        ({"seed": 1.5}, "seed"),
        ({"pattern": "x"}, "pattern"),
        ({"image": np.ones((2, 8, 8), complex)}, "image"),
    ],
)
def test_wrong_requests(beats, changes, field):
    with pytest.raises(InputError) as error:
        simulate_series(**{"image": beats, "coils": 2} | changes)
    assert error.value.field == field
