"""Zero filling."""

import torch

import upmri
from upmri.physics.fourier import ifft2c


def test_it_is_the_adjoint(scan):
    expected = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)
    assert torch.allclose(upmri.reconstruct(scan, "zero-filled").image, expected, atol=1e-6)
