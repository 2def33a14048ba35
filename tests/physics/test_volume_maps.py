"""Coil maps of a volume: each position along the readout alone, and yet in agreement with its neighbours."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
import torch

import upmri
from upmri.physics.espirit import find_maps
from upmri.physics.fourier import fft1c
from upmri.physics.phantom import image


@pytest.fixture(scope="module")
def volume():
    """A head whose size changes along the readout, with Poisson discs."""
    full = image((48, 40))
    grown = [torch.nn.functional.interpolate(full[None, None], (48 - 2 * z, 40))[0, 0] for z in range(8)]
    stack = torch.zeros(16, 48, 40)
    for z in range(16):
        part = grown[min(7, abs(z - 8))]
        stack[z, (48 - len(part)) // 2 :][: len(part)] = part
    return upmri.simulate(stack, coils=6, acceleration=3, acs=16, noise=0.002, seed=3, pattern="poisson")


def neighbours(maps):
    """⟨S(z+1), S(z)⟩ of all pixels that both have, (slice − 1, H, W)."""
    return torch.linalg.vecdot(maps[1:], maps[:-1], dim=1)


def test_neighbouring_positions_have_the_same_phase(volume):
    products = neighbours(find_maps(volume.kspace, volume.mask))
    assert float(products.sum((1, 2)).angle().abs().max()) < 0.5
    inside = products.abs() > 0.5
    assert float((products[inside].angle().abs() < 0.5).float().mean()) > 0.97


def test_the_image_of_a_volume_has_a_smooth_phase(volume):
    measured = upmri.Scan(kspace=volume.kspace, mask=volume.mask)
    rec = upmri.reconstruct(measured, "sense", device="cpu")
    steps = (rec.image[1:] * rec.image[:-1].conj()).sum((1, 2)).angle()
    assert float(steps.abs().max()) < 0.15


def test_a_simulated_volume_has_one_mask_and_a_phase_that_is_smooth_along_the_readout(volume):
    assert torch.equal(volume.mask, volume.mask[:1].expand_as(volume.mask))
    assert volume.meta["axes"] == {"readout": 16}
    steps = (volume.reference[1:] * volume.reference[:-1].conj()).sum((1, 2)).angle()
    assert float(steps.abs().max()) < 0.5


def test_maps_are_those_of_espirit_in_three_dimensions(volume, tmp_path):
    if shutil.which("bart") is None:
        pytest.skip("bart is not installed")
    kspace = (fft1c(volume.kspace, 0) * volume.mask[:, None]).permute(0, 2, 3, 1).numpy()
    kspace.astype("<c8").ravel(order="F").tofile(tmp_path / "k.cfl")
    (tmp_path / "k.hdr").write_text(f"# Dimensions\n{' '.join(map(str, kspace.shape))} {'1 ' * 12}\n")
    command = ["bart", "ecalib", "-m1", "-r", "16:16:16", "-k", "4:4:4", "-c", "0.7", "k", "s"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    theirs = np.fromfile(tmp_path / "s.cfl", "<c8").reshape(kspace.shape, order="F")
    theirs = torch.from_numpy(np.ascontiguousarray(theirs)).permute(0, 3, 1, 2)
    ours = find_maps(volume.kspace, volume.mask)
    both = (ours.abs().sum(1) > 0) & (theirs.abs().sum(1) > 0) & (volume.reference.abs() > 0.1)
    assert float(both.float().sum() / (volume.reference.abs() > 0.1).sum()) > 0.9
    agreement = torch.linalg.vecdot(ours, theirs, dim=1).abs()[both]  # 1 where both are the same but for a phase
    truth = torch.linalg.vecdot(ours, volume.maps, dim=1).abs()[both]
    assert float(agreement.mean()) > 0.98
    assert float(truth.mean()) > 0.98
