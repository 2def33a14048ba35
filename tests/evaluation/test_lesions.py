"""Synthetic lesions: the disc has its closed form, and a scan with lesions differs by the lesions alone."""

import math

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation.lesions import EDGE, Lesion, disc, smooth_places, with_lesions
from upmri.physics.fourier import fft2c


def smooth_head(size: int = 96) -> torch.Tensor:
    """A bright ring (scalp) around an even interior, with one rough quarter."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    r = torch.hypot(y, x)
    image = 0.5 * (r < 0.8) + 0.4 * ((r > 0.75) & (r < 0.85))
    rough = 0.4 * torch.rand(size, size, generator=torch.Generator().manual_seed(0)) - 0.2
    return image + rough * ((y > 0) & (x > 0) & (r < 0.8))


@pytest.mark.parametrize("shape", [(32, 32), (33, 40)])
@pytest.mark.parametrize("diameter", [2.0, 5.0, 8.0])
def test_disc_is_a_blurred_disc(shape, diameter):
    row, column, fine = 15.3, 17.8, 16
    # The same by brute force: a disc on a fine grid, blurred by a Gaussian in k-space, read at the pixels.
    y, x = ((np.arange(fine * n) / fine) for n in shape)
    sharp = (np.hypot(y[:, None] - row, x - column) <= diameter / 2).astype(float)
    ky, kx = np.fft.fftfreq(fine * shape[0], 1 / fine), np.fft.fftfreq(fine * shape[1], 1 / fine)
    k2 = ky[:, None] ** 2 + kx**2
    keep = (np.abs(ky)[:, None] < 0.5) & (np.abs(kx) < 0.5)
    blurred = np.fft.ifft2(np.fft.fft2(sharp) * np.exp(-2 * np.pi**2 * EDGE**2 * k2) * keep).real
    made = disc(shape, row, column, diameter)
    np.testing.assert_allclose(made, blurred[::fine, ::fine], atol=0.02)
    assert made.sum().item() == pytest.approx(math.pi * diameter**2 / 4)


def test_peak_of_a_small_disc():
    peak = disc((64, 64), 30, 31, 2.0)[30, 31].item()
    assert peak == pytest.approx(1 - math.exp(-1 / (2 * EDGE**2)), abs=0.03)  # without the band limit it is exact


def test_places_are_smooth_deep_and_apart():
    image = smooth_head()
    places = smooth_places(image, 25, torch.Generator().manual_seed(1))
    assert 3 <= len(places) < 25
    for i, (row, column, background) in enumerate(places):
        assert background == pytest.approx(0.5, abs=0.06)
        assert math.hypot(row - 47.5, column - 47.5) < 0.8 * 48 - 0.09 * 96 + 4  # the scalp is not chosen
        assert not (row > 60 and column > 60)  # nor what is rough
        assert all(math.hypot(row - r, column - c) >= 19 for r, c, _ in places[:i])
    assert places == smooth_places(image, 25, torch.Generator().manual_seed(1))
    assert places[:2] == smooth_places(image, 2, torch.Generator().manual_seed(1))


def test_a_scan_with_lesions_differs_by_them_alone():
    scan = upmri.simulate(smooth_head(64), coils=4, acceleration=2, noise=0.05, seed=3)
    lesions = [Lesion(30, 20.5, 4, 0.6, 0.5), Lesion(25, 40, 6, -0.6, 0.5)]
    changed = with_lesions(scan, lesions)
    added = sum(lesion.amplitude * disc((64, 64), lesion.row, lesion.column, lesion.diameter) for lesion in lesions)
    inside = scan.reference[0].abs() > 0.1  # elsewhere the ringing may not lead below 0
    change = changed.reference[0].abs() - scan.reference[0].abs()
    torch.testing.assert_close(change[inside], added.float()[inside], atol=1e-5, rtol=1e-5)
    # The phase stays, and so do noise and lines: the difference of k-space is that of the references.
    difference = fft2c(scan.maps * (changed.reference - scan.reference)[:, None]) * scan.mask[:, None]
    torch.testing.assert_close(changed.kspace - scan.kspace, difference, atol=1e-5, rtol=1e-4)
    assert torch.equal(changed.mask, scan.mask)
    phase = (changed.reference[0][inside] / scan.reference[0][inside]).angle().abs()
    assert phase.max() < 1e-4


def test_a_lesion_as_dark_as_possible_stays_positive():
    scan = upmri.simulate(smooth_head(64), coils=2, acceleration=1, noise=0.0, seed=3)
    changed = with_lesions(scan, [Lesion(30, 30, 8, -1.0, 0.7)])
    phase = (changed.reference[0] * scan.reference[0].conj()).real
    assert phase.min() >= -1e-6


def test_wrong_input():
    scan = upmri.simulate(smooth_head(64), coils=2, acceleration=2)
    lesion = Lesion(30, 30, 4, 0.3, 0.5)
    for wrong in (upmri.Scan(kspace=scan.kspace), upmri.simulate(torch.stack([smooth_head(64)] * 2), coils=2)):
        with pytest.raises(InputError) as error:
            with_lesions(wrong, [lesion])
        assert error.value.field == "scan"
    for field, values in {"diameter": (0, 0.3), "contrast": (4, 0.0)}.items():
        with pytest.raises(InputError) as error:
            Lesion(1, 1, *values, 1.0)
        assert error.value.field == field
