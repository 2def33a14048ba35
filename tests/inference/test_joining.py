"""Reconstructions of parts of a scan, joined."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.inference.joining import join_reconstructions

WIDTH = 64


@pytest.fixture(scope="module")
def scan():
    """Slices with partial Fourier, with few calibration lines, and with none at all."""
    image = upmri.demo.brain()[:1, ::2, :WIDTH].repeat(4, 0)
    full = upmri.simulate(image, coils=6, acceleration=1, acs=0, noise=0.01)
    at = torch.arange(WIDTH)
    lines = [at % 2 == 0, (at % 2 == 0) & (at < 46), at % 2 == 0, at % 2 == 0]
    for mask, acs in zip(lines, (16, 16, 5, 0), strict=True):
        mask[WIDTH // 2 - acs // 2 : WIDTH // 2 + (acs + 1) // 2] = True
    mask = torch.stack(lines)[:, None]
    return replace(full, kspace=full.kspace * mask[:, None], mask=mask, maps=None, reference=None)


@pytest.mark.filterwarnings("ignore:maps")
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_findings_are_those_of_the_scan(scan, cut):
    whole = upmri.reconstruct(scan, "sense", device="cpu")
    assert {"recognised", "maps_from", "calibration_lines"} <= whole.settings.keys()
    assert whole.settings["maps_from"] == "calibration lines, joint estimation"
    parts = [upmri.reconstruct(part, "sense", device="cpu") for part in (scan[:cut], scan[cut:])]
    joined = join_reconstructions(parts)
    assert joined.settings == whole.settings
    assert torch.equal(joined.image, whole.image)
