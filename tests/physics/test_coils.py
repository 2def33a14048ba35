import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics.coils import compress, estimate_noise, noise_covariance, whiten
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
    readouts = torch.tensor(noise)[:, None] * rng(1, 100)
    expected = pytest.warns(UserWarning, match="100 of 100 noise samples") if noise[1] != noise[1] else nullcontext()
    with expected, pytest.raises(InputError) as error:
        noise_covariance(readouts)
    assert error.value.field == "readouts"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), complex(0, float("-inf"))])
def test_noise_samples_that_are_not_finite_are_left_out(rng, value):
    readouts = rng(2, 100)
    spoilt = torch.cat([readouts[:, :40], torch.full((2, 1), value), readouts[:, 40:]], 1)
    spoilt[1, 40] = 1  # of one coil only
    with pytest.warns(UserWarning, match="1 of 101 noise samples are not finite and are left out"):
        covariance = noise_covariance(spoilt)
    assert torch.equal(covariance, noise_covariance(readouts))


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
    image = (small.maps.conj() * upmri.physics.fourier.ifft2c(small.kspace)).sum(1)
    before = (scan.maps.conj() * upmri.physics.fourier.ifft2c(scan.kspace)).sum(1)
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


@pytest.mark.parametrize(("sigma", "echo"), [(0.003, 96), (0.03, 96), (0.03, 70)])  # 70: an asymmetric echo
def test_without_calibration_lines_all_lines_give_the_noise(sigma, echo):
    full = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=1, acs=0, noise=sigma)
    taken = (torch.arange(96) % 2 == 1) & (torch.arange(96)[:, None] < echo)
    assert abs(estimate_noise(upmri.Scan(kspace=full.kspace * taken)).item() / sigma - 1) < 0.1


def test_points_without_a_calibration_block(rng):
    kspace = rng(1, 4, 32, 32) * (torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.5)
    kspace[..., 16, 16] = 0
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


@pytest.mark.parametrize("coils", [1, 2, 3])
@pytest.mark.parametrize("acceleration", [1, 2, 4])
@pytest.mark.parametrize("sigma", [0.002, 0.005, 0.05])
def test_noise_of_few_coils_with_air_around_the_object(sigma, acceleration, coils):
    image = torch.nn.functional.pad(torch.as_tensor(upmri.demo.brain()[:1]), (0, 0, 24, 24))
    scan = upmri.simulate(image, coils=coils, acceleration=acceleration, noise=sigma)
    assert estimate_noise(scan).item() == pytest.approx(sigma, rel=0.15)


@pytest.mark.parametrize("group", ["brain_t1_stripped", "brain_t1_head", "brain_flair_ms"])
@pytest.mark.parametrize("sigma", [0.002, 0.01, 0.05])
def test_noise_of_one_coil_in_real_brains(data, group, sigma):
    person = json.loads((data / "anatomies" / "splits.json").read_text())[group]["val"][0]
    images = np.load(data / "anatomies" / group / f"{person.removesuffix('.npz')}.npz")["image"]
    scan = upmri.simulate(images[len(images) // 2].astype(np.float32), coils=1, acceleration=4, noise=sigma)
    assert estimate_noise(scan).item() == pytest.approx(sigma, rel=0.15)


@pytest.mark.parametrize(("sigma", "most"), [(0.01, 1.6), (0.03, 1.15)])
def test_noise_of_one_coil_without_air(data, sigma, most):
    """Samples far from DC bound it; patches alone give more than 4 and 1.6 times σ₀."""
    person = json.loads((data / "anatomies" / "splits.json").read_text())["brain_t1_stripped"]["val"][0]
    images = np.load(data / "anatomies" / "brain_t1_stripped" / f"{person.removesuffix('.npz')}.npz")["image"]
    inner = images[len(images) // 2, 52:147, 61:139].astype(np.float32)
    scan = upmri.simulate(inner, coils=1, acceleration=2, noise=sigma)
    assert 0.9 * sigma < estimate_noise(scan).item() < most * sigma


def test_empty_ends_of_the_readout_are_no_noise():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=1, acceleration=2, noise=0.03)
    padded = torch.nn.functional.pad(scan.kspace, (0, 0, 16, 16))
    assert estimate_noise(upmri.Scan(kspace=padded, mask=scan.mask)).item() == pytest.approx(0.03, rel=0.3)


@pytest.mark.parametrize("acceleration", [1, 2])
def test_noise_of_one_coil_where_only_corners_are_air(acceleration):
    """The brain fills the field of view in both directions: the estimate was 0.0189."""
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=1, acceleration=acceleration, noise=0.005)
    assert 0.0045 < estimate_noise(scan).item() < 0.0075


def test_coils_and_slices_of_zeros_do_not_count():
    scan = upmri.simulate(upmri.demo.brain()[:2], coils=8, noise=0.01)
    kspace = scan.kspace.clone()
    kspace[0, 5] = 0
    kspace[1] = 0
    others = upmri.Scan(kspace=scan.kspace[:1, [0, 1, 2, 3, 4, 6, 7]])
    found = estimate_noise(upmri.Scan(kspace=kspace))
    assert found[0].item() == pytest.approx(estimate_noise(others).item(), rel=1e-5)
    assert found[1] == 0
