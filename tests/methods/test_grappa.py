"""GRAPPA as a method: on simulations, with little to calibrate on, and on real scans."""

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError, Scan
from upmri.evaluation import evaluate
from upmri.methods.grappa import Grappa
from upmri.physics.fourier import ifft2c
from upmri.physics.grappa import covariance_of_block, fill
from upmri.physics.masks import calibration_region, equispaced, poisson_disc, random_lines
from upmri.physics.problem import Problem


def scan_of(mask, noise=0.01):
    full = upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=8, acceleration=1, noise=noise)
    chosen = mask(*full.matrix)
    return Scan(kspace=full.kspace * chosen, mask=chosen, reference=full.reference)


def points(h, w):
    return poisson_disc((h, w), 4, (16, 16))


MASKS = {
    "regular": lambda _, w: equispaced(w, 2, 16),
    "random": lambda _, w: random_lines(w, 2, 16),
    "points": points,
    "equal columns": lambda h, w: equispaced(h, 2, 16).mT.expand(h, w),
}


@pytest.mark.parametrize("kind", MASKS)
def test_it_removes_aliases(kind):
    scan = scan_of(MASKS[kind])
    psnr = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in ("zero-filled", "sense", "grappa")}
    assert psnr["grappa"] > psnr["zero-filled"] + 3
    assert psnr["grappa"] > psnr["sense"] - 1


def test_the_image_is_combined_from_filled_coils_in_the_units_of_the_scan():
    scan = scan_of(MASKS["regular"])
    problem = Problem.from_scan(scan)
    reach, (_, columns) = (2, 3), calibration_region(scan.mask[0], scan.matrix[0])
    block = scan.kspace[0, ..., columns]
    filled = fill(scan.kspace[0], scan.mask[0], covariance_of_block(block, reach), reach, damping=0.03, most=4)
    expected = (problem.operator.maps[0].conj() * ifft2c(filled)).sum(0)
    found = upmri.reconstruct(scan, "grappa").image[0]
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_samples_are_kept():
    full = scan_of(lambda _, w: torch.ones(1, w, dtype=torch.bool))
    torch.testing.assert_close(*(upmri.reconstruct(full, name).image for name in ("grappa", "zero-filled")))


def test_without_enough_calibration_lines_kernels_come_from_the_maps():
    whole = upmri.estimate_maps(scan_of(lambda _, w: torch.ones(1, w, dtype=torch.bool)))
    mask = equispaced(whole.matrix[1], 2, 0)
    scan = Scan(kspace=whole.kspace * mask, mask=mask, maps=whole.maps, reference=whole.reference)
    auto, maps = (upmri.reconstruct(scan, "grappa", calibration=how) for how in ("auto", "maps"))
    assert torch.equal(auto.image, maps.image)
    assert evaluate(auto)["psnr"] > evaluate(upmri.reconstruct(scan, "zero-filled"))["psnr"] + 5
    with pytest.raises(InputError, match="calibration='maps'") as error:
        upmri.reconstruct(scan, "grappa", calibration="lines")
    assert error.value.field == "kspace"


def test_an_asymmetric_echo_is_a_mask_of_lines():
    scan = scan_of(MASKS["regular"])
    kspace = scan.kspace.clone()
    kspace[:, :, :5] = 0
    cut = upmri.reconstruct(Scan(kspace=kspace, reference=scan.reference), "grappa")
    assert evaluate(cut)["psnr"] > 25
    cropped = kspace[0, :, 5:]
    reach, (_, columns) = (2, 3), calibration_region(scan.mask[0], scan.matrix[0])
    covariance = covariance_of_block(cropped[..., columns], reach)
    filled = torch.zeros_like(kspace[0])
    filled[:, 5:] = fill(cropped, scan.mask[0], covariance, reach, damping=0.03, most=4)
    maps = Problem.from_scan(Scan(kspace=kspace)).operator.maps[0]
    expected = (maps.conj() * ifft2c(filled)).sum(0)
    assert (cut.image[0] - expected).norm() < 1e-4 * expected.norm()


def test_slices_alone_and_together_are_the_same():
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10)
    together = upmri.reconstruct(scan, "grappa").image
    assert torch.equal(together[1:], upmri.reconstruct(scan[1], "grappa").image)


def test_held_out_lines_can_be_tested():
    rec = upmri.reconstruct(scan_of(MASKS["regular"]), "grappa", check=True)
    assert np.isfinite(rec.settings["held_out_gain"])


def test_operators_without_coils_are_refused(scan, own_operator):
    own, _ = own_operator(scan)
    with pytest.raises(InputError) as error:
        upmri.reconstruct(own, "grappa")
    assert error.value.field == "operator"


@pytest.mark.parametrize(
    "setting", [{"rows": 4}, {"rows": 0}, {"lines": 3}, {"lines": 0}, {"damping": 0.0}, {"calibration": "acs"}]
)
def test_settings_are_checked(setting):
    with pytest.raises(InputError) as error:
        Grappa(**setting)
    assert error.value.field == next(iter(setting))


# --- real scans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["invivo_brain_16ch_kspace", "invivo_brain_7ch_kspace"])
def test_brains_with_every_third_line(data, name):
    kspace = torch.from_numpy(np.load(data / "scans" / f"{name}.npy"))
    full = upmri.reconstruct(Scan(kspace=kspace), "zero-filled").image
    mask = equispaced(kspace.shape[-1], 3, 24)
    scan = Scan(kspace=kspace * mask, mask=mask, reference=full)
    psnr = {name: evaluate(upmri.reconstruct(scan, name))["psnr"] for name in ("zero-filled", "sense", "grappa")}
    assert psnr["grappa"] > psnr["zero-filled"] + 9
    assert psnr["grappa"] > psnr["sense"]


def test_the_phantom_with_its_reference_scan(data):
    """Kernels from the maps of the reference scan, and directly from it, give the same image up to 3 %."""
    kspace, reference = (
        torch.from_numpy(np.load(data / "scans" / f"phantom_16ch_r2_{name}.npy")).to(torch.complex64)
        for name in ("kspace", "reference")
    )
    scan = upmri.estimate_maps(Scan(kspace=kspace), reference=Scan(kspace=reference))
    found = upmri.reconstruct(scan, "grappa").image[0]
    rows = scan.mask[0].any(1)
    filled = torch.zeros_like(kspace)
    covariance = covariance_of_block(reference, (2, 3))
    lines = scan.mask[0].any(0, keepdim=True)
    filled[:, rows] = fill(kspace[:, rows], lines, covariance, (2, 3), damping=0.03, most=4)
    direct = (scan.maps[0].conj() * ifft2c(filled)).sum(0)
    aliased = upmri.reconstruct(scan, "zero-filled").image[0]
    assert (found - direct).norm() < 0.03 * direct.norm()
    assert (2 * aliased - direct).norm() > 0.1 * direct.norm()
