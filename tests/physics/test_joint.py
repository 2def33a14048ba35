from dataclasses import replace

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics.fourier import fft2c
from upmri.physics.joint import joint_estimate


@pytest.fixture(scope="module")
def full():
    return upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=8, acceleration=1, acs=0, noise=0.003)


def lines(kind, width=48):
    mask = torch.zeros(width, dtype=torch.bool)
    if kind == "random":
        mask[torch.randperm(width, generator=torch.Generator().manual_seed(0))[: width // 2]] = True
    else:
        mask[kind::2] = True
    return mask


@pytest.mark.parametrize("kind", [0, 1, "random"])
def test_maps_without_calibration_lines_are_near_the_true_ones(full, kind):
    """Of regular lines with DC among them or not, and of random lines: what true maps explain, these explain, too."""
    mask = lines(kind)
    maps, copy = joint_estimate(full.kspace * mask, mask[None, None])
    assert copy.shape == (1,)
    assert (0 < copy.item() < 1) if kind != "random" else (copy.item() == 0)
    inside = (maps != 0).any(1)
    energy = maps.abs().square().sum(1)
    assert torch.allclose(energy[inside], torch.ones(()), atol=1e-4)
    assert not energy[~inside].any()
    bright = full.reference.abs() > 0.1
    assert inside[bright].float().mean() > 0.99
    assert 0.9 < inside.sum() / (full.maps != 0).any(1).sum() < 1.3
    overlap = (maps.conj() * full.maps).sum(1).abs()[bright & inside]  # 1 where they differ by a phase alone
    assert overlap.median() > 0.99
    assert overlap.quantile(0.05) > 0.9


def test_the_image_is_nearly_as_good_as_with_true_maps(full):
    mask = lines(0)
    scan = replace(full, kspace=full.kspace * mask, mask=mask[None, None])
    true, joint = (
        upmri.evaluate(upmri.reconstruct(replace(scan, maps=maps), "sense", device="cpu"))["psnr"]
        for maps in (scan.maps, joint_estimate(scan.kspace, scan.mask)[0])
    )
    assert joint > min(true, 45) - 1  # with true maps noise is the only error: 51 dB


def test_a_grid_of_points_and_another_scale(full):
    mask = torch.rand(1, *full.matrix, generator=torch.Generator().manual_seed(0)) < 0.6
    maps, _ = joint_estimate(1e4 * full.kspace * mask[:, None], mask)
    bright = full.reference.abs() > 0.1
    assert (maps.conj() * full.maps).sum(1).abs()[bright].median() > 0.99


def test_k_space_whose_centre_is_in_a_corner_is_refused(full):
    shifted = torch.fft.ifftshift(full.kspace, (-2, -1)) * lines(0)
    with pytest.raises(InputError, match="fftshift it if its centre is in a corner") as error:
        joint_estimate(shifted, lines(0)[None, None])
    assert error.value.field == "kspace"


@pytest.mark.soak
def test_real_brain(data):
    """Every second line of a real brain: maps explain the lines that were not sampled."""
    scan = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy")
    mask = lines(0, scan.matrix[1])
    maps, _ = joint_estimate(scan.kspace * mask, mask[None, None])
    rec = upmri.reconstruct(upmri.Scan(kspace=scan.kspace * mask, maps=maps), "sense", device="cpu")
    rest = (scan.kspace - fft2c(maps * rec.image[:, None])) * ~mask
    assert rest.norm() < 0.3 * (scan.kspace * ~mask).norm()
