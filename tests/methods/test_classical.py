"""The methods that need no training, through the one interface they share."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.evaluation import evaluate
from upmri.methods import find_method
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.sense import SenseOperator

CLASSICAL = ("zero-filled", "sense", "cg-sense", "l1-wavelet")


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2], coils=8, acceleration=4, noise=0.01)


def test_the_room_can_be_called():
    assert set(CLASSICAL) <= set(upmri.methods())


@pytest.mark.parametrize("name", CLASSICAL)
def test_names_and_settings(name, scan):
    assert find_method(name).name == name
    assert find_method(name).summary
    rec = upmri.reconstruct(scan, name)
    assert rec.method == name
    assert rec.image.shape == scan.reference.shape
    assert rec.image.dtype == torch.complex64
    assert rec.settings["seed"] == 0
    assert rec.seconds > 0
    assert torch.equal(rec.reference, scan.reference)


def test_zero_filled_is_the_adjoint(scan):
    expected = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)
    assert torch.allclose(upmri.reconstruct(scan, "zero-filled").image, expected, atol=1e-6)


def test_sense_solves_the_normal_equations(scan):
    x = upmri.reconstruct(scan, "sense", damping=0.01).image
    A = SenseOperator(scan.maps, scan.mask)
    rhs = A.adjoint(scan.kspace)
    assert (A.normal(x) + 0.01 * x - rhs).norm() < 1e-5 * rhs.norm()


def test_sense_recovers_a_fully_sampled_image(scan):
    full = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=1, noise=0)
    assert evaluate(upmri.reconstruct(full, "sense"))["psnr"] > 60


def test_cg_sense_converges_to_sense_without_noise():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=2, noise=0)
    few, many = (evaluate(upmri.reconstruct(scan, "cg-sense", steps=k))["psnr"] for k in (2, 60))
    assert many > few + 10


def test_order_of_quality(scan):
    score = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in CLASSICAL}
    assert score["sense"] > score["zero-filled"] + 2
    assert score["cg-sense"] > score["zero-filled"] + 2
    assert score["l1-wavelet"] >= score["sense"]


def test_sense_damping_grows_with_the_noise():
    sigma = torch.tensor([0.0, 0.01, 0.04])
    assert torch.allclose(sense_damping(sigma), torch.tensor([1e-4, 5e-3, 4e-2]))


@pytest.mark.parametrize("name", CLASSICAL)
def test_the_result_scales_with_the_scan(name, scan):
    louder = upmri.Scan(kspace=1e-5 * scan.kspace, mask=scan.mask, maps=scan.maps, noise=1e-5 * scan.noise)
    one, other = upmri.reconstruct(scan, name).image, upmri.reconstruct(louder, name).image
    assert (1e5 * other - one).norm() < 1e-3 * one.norm()


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_slice_alone_is_the_slice_in_the_volume(name, scan):
    assert torch.equal(upmri.reconstruct(scan, name).image[1:], upmri.reconstruct(scan[1], name).image)


def test_maps_and_noise_are_estimated(scan):
    bare = replace(scan, maps=None, noise=None)
    blind, told = evaluate(upmri.reconstruct(bare, "sense")), evaluate(upmri.reconstruct(scan, "sense"))
    assert blind["psnr"] > told["psnr"] - 2


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("magic", {}, "'magic' is not one of zero-filled"),
        ("sense", {"steps": 3}, "steps: not a setting of sense, which takes damping"),
        ("zero-filled", {"damping": 3}, "takes no settings"),
        ("sense", {"samples": 4}, "samples: not a setting of sense"),
        ("sense", {"model": "brain"}, "model: not a setting of sense"),
        ("sense", {"damping": 0.0}, "λ > 0"),
        ("sense", {"damping": float("nan")}, "λ > 0"),
        ("cg-sense", {"steps": 0}, "at least 1"),
        ("sense", {"device": "tpu"}, "not available here"),
        ("sense", {"device": "cuda:77"}, "not available here"),
    ],
)
def test_wrong_settings(scan, name, settings, match):
    with pytest.raises(InputError, match=match):
        upmri.reconstruct(scan, name, **settings)


def test_no_calibration_lines(scan):
    mask = torch.arange(96)[None, None].expand(2, 1, -1) % 4 == 0
    bare = upmri.Scan(kspace=ifft2c(scan.kspace)[:, :, :, :] * 0 + mask[:, None] * (1 + 1j))
    with pytest.raises(InputError, match="fully sampled lines"):
        upmri.reconstruct(bare, "sense")


@pytest.mark.parametrize(
    ("pattern", "gain"), [("every 4th", 8.0), ("random", 2.0)], ids=["24 + every 4th (R 2.6)", "24 + 8 random (R 4)"]
)
def test_real_brain(data, pattern, gain):
    """The scan's own k-space, maps from the undersampled calibration lines."""
    kspace = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy").kspace
    if pattern == "random":
        mask = random_lines(128, 4, acs=24, seed=0)
    else:
        mask = torch.zeros(1, 128, dtype=torch.bool)
        mask[:, 52:76] = True
        mask[:, ::4] = True
    scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask))
    reference = (scan.maps.conj() * ifft2c(kspace)).sum(1)
    scan = replace(scan, reference=reference)
    score = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in CLASSICAL}
    assert score["sense"] > score["zero-filled"] + gain
    assert score["l1-wavelet"] >= score["sense"]
