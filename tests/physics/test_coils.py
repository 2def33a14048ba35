from dataclasses import replace

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics import fourier
from upmri.physics.coils import compress, estimate_noise, noise_covariance, whiten
from upmri.physics.masks import poisson_disc
from upmri.physics.phantom import phantom_scan


def test_whitened_noise_is_white(rng):
    mixing = rng(4, 4) + 2 * torch.eye(4)
    noise = (mixing @ rng(4, 20000)).reshape(4, 100, 200)
    covariance = noise_covariance(noise)
    assert torch.allclose(covariance, mixing @ mixing.mH, atol=0.05 * covariance.abs().max().item())
    white = whiten(noise[None], covariance)
    assert torch.allclose(noise_covariance(white[0]), torch.eye(4, dtype=white.dtype), atol=1e-10)


def test_too_few_noise_samples(rng):
    with pytest.raises(InputError) as error:
        noise_covariance(rng(8, 10))
    assert error.value.field == "readouts"


@pytest.mark.parametrize("noise", [[1, 0], [1, 1], [1, float("nan")]])
def test_noise_of_which_a_coil_has_none_of_its_own(rng, noise):
    """Silent, the same as another, or no number."""
    with pytest.raises(InputError) as error:
        noise_covariance(torch.tensor(noise)[:, None] * rng(1, 100))
    assert error.value.field == "readouts"


def test_a_dead_coil_cannot_be_whitened(rng):
    with pytest.raises(InputError) as error:
        whiten(rng(1, 2, 4, 4), torch.tensor([[1, 0], [0, 0]], dtype=torch.complex128))
    assert error.value.field == "covariance"


def test_compression_keeps_what_a_low_rank_array_sees(rng):
    virtual = rng(1, 3, 16, 16)
    kspace = torch.einsum("cv,nvhw->nchw", rng(8, 3), virtual)
    small = compress(upmri.Scan(kspace=kspace), 3)
    assert small.coils == 3
    assert torch.allclose(small.kspace.norm(), kspace.to(torch.complex64).norm(), rtol=1e-4)
    with pytest.raises(InputError) as error:
        compress(upmri.Scan(kspace=kspace), 9)
    assert error.value.field == "coils"


def test_compressed_maps_still_explain_the_scan():
    scan = phantom_scan((64, 64), coils=8)
    small = compress(scan, 6)
    image = (small.maps.conj() * fourier.ifft2c(small.kspace)).sum(1)
    before = (scan.maps.conj() * fourier.ifft2c(scan.kspace)).sum(1)
    assert (image.abs() - before.abs()).norm() < 0.05 * before.abs().norm()
    norms = small.maps.abs().square().sum(1).sqrt()
    assert torch.allclose(norms[norms > 0], torch.tensor(1.0))


@pytest.mark.parametrize("acceleration", [2, 4])
@pytest.mark.parametrize("sigma", [0.002, 0.02])
def test_noise_is_found_within_15_percent(sigma, acceleration):
    scan = upmri.simulate(upmri.demo.brain(), acceleration=acceleration, acs=16, noise=sigma)
    assert torch.allclose(estimate_noise(scan), torch.tensor(sigma), rtol=0.15)


def test_noise_scales_with_the_data():
    scan = upmri.simulate(upmri.demo.brain()[:1], noise=0.02)
    louder = upmri.Scan(kspace=1000 * scan.kspace)
    assert torch.allclose(estimate_noise(louder), 1000 * estimate_noise(scan), rtol=1e-3)


def test_no_calibration_lines(rng):
    kspace = rng(1, 4, 32, 32) * (torch.arange(32) % 4 == 1)
    with pytest.raises(InputError) as error:
        estimate_noise(upmri.Scan(kspace=kspace))
    assert error.value.field == "noise"


def test_of_many_calibration_lines_the_innermost_give_the_noise():
    full = upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=1, noise=0.01)
    lines = torch.zeros(1, 96, dtype=torch.bool)
    lines[:, 24:72] = True  # 48 of 96, the centre among them at 48
    some = replace(full, kspace=full.kspace * lines, mask=lines)
    assert torch.equal(estimate_noise(full), estimate_noise(some))
    assert estimate_noise(full).item() == pytest.approx(full.noise, rel=0.15)


@pytest.mark.parametrize("acceleration", [1, 2, 4])
@pytest.mark.parametrize("sigma", [0.001, 0.005, 0.02])
def test_noise_of_one_coil_is_found_within_20_percent(sigma, acceleration):
    image = torch.nn.functional.pad(torch.as_tensor(upmri.demo.brain()), (0, 0, 24, 24))  # air along the readout
    scan = upmri.simulate(image, coils=1, acceleration=acceleration, noise=sigma)
    assert torch.allclose(estimate_noise(scan), torch.tensor(sigma), rtol=0.2)


def test_noise_of_one_coil_from_a_calibration_block():
    image = torch.nn.functional.pad(torch.as_tensor(upmri.demo.brain()[:1]), (0, 0, 24, 24))
    full = upmri.simulate(image, coils=1, acceleration=1, noise=0.01)
    points = poisson_disc(full.matrix, 3, (72, 48))
    scan = upmri.Scan(kspace=full.kspace * points, mask=points)
    assert estimate_noise(scan).item() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("acceleration", [1, 2, 4, 8])
def test_noise_of_one_coil_without_air_is_not_guessed(acceleration):
    """The brain fills the field of view: the estimate would be 0.0189 instead of 0.005."""
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=1, acceleration=acceleration, noise=0.005)
    with pytest.raises(InputError, match="give noise with the scan") as error:
        estimate_noise(scan)
    assert error.value.field == "noise"


def test_noise_of_one_coil_without_calibration_block(rng):
    points = torch.zeros(32, 32, dtype=torch.bool)
    points[1::3, 1::2] = True  # not the centre
    with pytest.raises(InputError) as error:
        estimate_noise(upmri.Scan(kspace=rng(1, 1, 32, 32) * points))
    assert error.value.field == "noise"


def test_noise_of_each_coil_of_a_real_scan_alone(data):
    scan = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy")
    alone = torch.cat([estimate_noise(upmri.Scan(kspace=scan.kspace[:, c : c + 1])) for c in range(scan.coils)])
    air = fourier.ifft2c(scan.kspace)[0, :, :6].abs().square().mean((1, 2)).sqrt()  # first rows of the image
    assert torch.allclose(alone, air, rtol=0.2)
