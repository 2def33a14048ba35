"""Bands of k-space against loops over positions, and the filter against its own definition."""

import math

import pytest
import torch

from upmri.learning.bands import EDGES, band_of, by_band, filter_bands, radius
from upmri.physics.fourier import fft2c


@pytest.mark.parametrize("shape", [(9, 12), (40, 21)])
def test_sums_by_position(shape, rng):
    values = rng(2, *shape).real
    sums = torch.zeros(2, 5).double()
    for y in range(shape[0]):
        for x in range(shape[1]):
            distance = math.hypot(y - shape[0] // 2, x - shape[1] // 2)
            assert radius(shape)[y, x].item() == pytest.approx(distance)
            band = sum(distance >= edge for edge in EDGES)
            assert band_of(shape)[y, x] == band
            sums[:, band] += values[:, y, x]
    torch.testing.assert_close(by_band(values), sums)


def test_a_wave_is_multiplied_by_the_gain_at_its_frequency():
    """Gains of two slices at the nodes, between them, and beyond them."""
    radii, gains = torch.tensor([2.0, 8.0]), torch.tensor([[1.0, 4.0], [3.0, 0.5]])
    column = torch.arange(32) - 16
    for frequency, share in ((0, 0.0), (2, 0.0), (4, 0.5), (8, 1.0), (15, 1.0)):
        wave = torch.exp(2j * torch.pi * frequency * column / 32).expand(3, 2, 32, 32)
        found = filter_bands(wave, radii, gains.log())
        expected = gains[:, 0] ** (1 - share) * gains[:, 1] ** share
        torch.testing.assert_close(found, expected[:, None, None] * wave, atol=1e-4, rtol=1e-4)


def test_equal_gains_are_a_factor(rng):
    images = rng(2, 1, 24, 30)
    found = filter_bands(images, torch.tensor([3.0, 6.0, 9.0]), torch.full((1, 3), 2.5).double().log())
    torch.testing.assert_close(found, 2.5 * images)
    assert fft2c(found).shape == images.shape
