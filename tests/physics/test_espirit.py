import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics import espirit as module
from upmri.physics import phantom
from upmri.physics.espirit import espirit, find_maps
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.maps import estimate_maps

sigpy_mri = pytest.importorskip("sigpy.mri")


def aligned(maps, other):
    """``other`` with the phase of ``maps`` at each point."""
    phase = (other.conj() * maps).sum(0)
    return other * phase / phase.abs().clamp_min(1e-12)


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=2, acs=24, noise=0.005)


def test_agrees_with_sigpy(scan):
    block = scan.kspace[0, :, 36:60, 36:60]
    ours = espirit(block, (96, 96), crop=0.95)
    theirs = sigpy_mri.app.EspiritCalib(
        scan.kspace[0].numpy(), calib_width=24, kernel_width=6, thresh=0.02, crop=0.95, show_pbar=False
    ).run()
    theirs = torch.as_tensor(theirs)
    bright = scan.reference[0].abs() > 0.1  # elsewhere two eigenvalues may be equal, and any vector between is right
    both = (ours != 0).any(0) & (theirs != 0).any(0) & bright
    assert both.sum() > 0.98 * ((theirs != 0).any(0) & bright).sum()
    assert (ours - aligned(ours, theirs))[:, both].norm() < 0.005 * ours[:, both].norm()


def test_is_near_the_truth(scan):
    found = estimate_maps(scan).maps[0]
    inside = (scan.maps[0] != 0).any(0) & (found != 0).any(0)
    assert inside.sum() > 0.97 * (scan.maps[0] != 0).any(0).sum()
    assert (found - aligned(found, scan.maps[0]))[:, inside].norm() < 0.1 * found[:, inside].norm()


def test_maps_have_length_1_or_0(scan):
    energy = estimate_maps(scan).maps.abs().square().sum(1)
    assert bool(((energy - 1).abs() < 1e-5).logical_or(energy == 0).all())
    assert 0.2 < (energy > 0).float().mean() < 0.9


def test_the_block_size_changes_nothing(scan, monkeypatch):
    block = scan.kspace[0, :, 36:60, 36:60]
    whole = espirit(block, (96, 96), tolerance=0)
    monkeypatch.setitem(module._BLOCK, "cpu", 1)
    rows = espirit(block, (96, 96), tolerance=0)
    both = (rows != 0).any(0) & (whole != 0).any(0)
    assert both.sum() > 0.999 * (whole != 0).any(0).sum()  # rounding may decide at the crop's very edge
    assert torch.allclose(rows[:, both], whole[:, both], atol=1e-4)


def test_the_default_type_of_torch_changes_nothing(scan, double_by_default):
    expected = find_maps(scan.kspace, scan.mask)
    double_by_default()
    assert torch.equal(find_maps(scan.kspace, scan.mask), expected)


def test_the_phase_reference_is_smooth(scan):
    maps = estimate_maps(scan).maps[0]
    bright = scan.reference[0].abs() > 0.1
    step = (maps[:, 1:] - maps[:, :-1]).norm(dim=0)[bright[1:] & bright[:-1]]
    assert step.quantile(0.999) < 0.5  # a jump of π would be 2


@pytest.mark.parametrize(("shape", "lines"), [((40, 48), 4), ((41, 33), 5), ((48, 40), 7)])
def test_few_lines_and_odd_sizes(shape, lines, rng):
    h, w = shape
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    body = ((rows**2 + columns**2) < 0.5).to(torch.complex64) * (1 + 0.3 * columns)
    maps = torch.stack([torch.exp(1j * (a * rows + b * columns)) for a, b in ((0, 0), (1, 0), (0, 1), (1, 1))]) / 2
    kspace = fft2c(maps * body)[None]
    mask = torch.zeros(w, dtype=torch.bool)
    mask[w // 2 - lines // 2 : w // 2 - lines // 2 + lines] = True
    found = estimate_maps(upmri.Scan(kspace=kspace * mask)).maps[0]
    assert found.shape == (4, h, w)
    centre = found[:, h // 2, w // 2]
    assert (maps[:, h // 2, w // 2].conj() @ centre).abs() > 0.99


def test_poisson_disc_calibration(scan):
    full = fft2c(scan.maps * scan.reference[:, None])
    mask = upmri.physics.masks.poisson_disc((96, 96), 4, calibration=(20, 20), seed=0)
    found = estimate_maps(upmri.Scan(kspace=full * mask)).maps[0]
    coils = ifft2c(full[0])
    assert (found * (found.conj() * coils).sum(0) - coils).norm() < 0.1 * coils.norm()


def test_too_few_lines(rng):
    kspace = rng(1, 4, 32, 32) * (torch.arange(32) % 2 == 0)
    with pytest.raises(InputError) as error:
        estimate_maps(upmri.Scan(kspace=kspace))
    assert error.value.field == "kspace"


def test_no_signal_at_the_centre():
    kspace = torch.zeros(1, 2, 32, 32, dtype=torch.complex64)
    kspace[..., :4] = 1
    mask = torch.zeros(32, 32, dtype=torch.bool)
    mask[:, :4] = True
    mask[12:20, 12:20] = True
    kspace[..., 16, 16] = 0
    scan = upmri.Scan(kspace=kspace + 0 * mask, mask=None)
    with pytest.raises(InputError) as error:
        estimate_maps(scan)
    assert error.value.field == "kspace"


def test_real_brain(data):
    scan = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy")
    block = scan.kspace[0, :, 52:76, 52:76]
    found = espirit(block, scan.matrix)
    coils = ifft2c(scan.kspace[0])
    inside = (found != 0).any(0)
    assert 0.35 < inside.float().mean() < 0.6
    rest = (found * (found.conj() * coils).sum(0) - coils)[:, inside]
    assert rest.norm() < 0.12 * coils[:, inside].norm()


def test_a_slice_without_samples_has_maps_of_0():
    scan = upmri.simulate(upmri.demo.brain()[:2], coils=4, acceleration=2, noise=0.01)
    kspace = scan.kspace.clone()
    kspace[0] = 0
    maps = upmri.estimate_maps(upmri.Scan(kspace=kspace)).maps
    assert not maps[0].any()
    assert torch.equal(maps[1:], upmri.estimate_maps(upmri.Scan(kspace=kspace[1:])).maps)
    with pytest.raises(InputError) as error:
        upmri.estimate_maps(upmri.Scan(kspace=kspace[:1]))
    assert error.value.field == "kspace"


def test_maps_from_the_projector_are_those_from_a_basis(monkeypatch):
    block = upmri.simulate(upmri.demo.brain()[:1], coils=5, acceleration=1).kspace[..., 36:60, 36:60]
    by_basis = espirit(block, (48, 48))
    signal_space = module._signal_space

    def projector(*given):
        basis = signal_space(*given)
        return basis @ basis.mH

    monkeypatch.setattr(module, "_signal_space", projector)
    assert (espirit(block, (48, 48)) - by_basis).norm() < 1e-4 * by_basis.norm()


def test_an_unsymmetric_calibration_block_is_used_around_the_centre():
    scan = upmri.simulate(phantom.image((64, 64)), coils=6, acceleration=1, acs=0, noise=0.02)
    lines = torch.arange(64)[None, None] < 44  # partial Fourier
    cut = find_maps(scan.kspace * lines[:, None], lines)
    assert torch.equal(cut, find_maps(scan.kspace, scan.mask))
