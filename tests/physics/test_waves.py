"""Waves against a dense matrix."""

import pytest
import torch

from upmri.physics.waves import Waves


def test_waves_and_their_adjoint_and_gram_matrix():
    like = torch.zeros(1, dtype=torch.complex128)
    waves = Waves.over((6, 7), 2, 1.5, like)
    phi = torch.stack([waves.maps(e[None, :, None])[0, 0] for e in torch.eye(25, dtype=like.dtype)], -1).reshape(42, 25)
    row, column, k, m = 4, 1, -2, 1  # φ_k(r) = exp(2πi k·r / (L N)), r from the centre
    angle = torch.tensor(2 * torch.pi * (k * (row - 3) / 6 + m * (column - 3) / 7) / 1.5, dtype=torch.float64)
    torch.testing.assert_close(phi[row * 7 + column, (k + 2) * 5 + m + 2], torch.polar(torch.ones_like(angle), angle))
    z = torch.randn(2, 3, 6, 7, dtype=like.dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(waves.adjoint(z), (phi.mH @ z.reshape(2, 3, 42).mT))
    weight = z[:, 0].abs()
    torch.testing.assert_close(waves.gram(weight), phi.mH @ (weight.reshape(2, 42, 1) * phi))
    assert waves.penalty[12] == 1
    assert waves.penalty[0] == pytest.approx((1 + 2 * (2 / 1.5) ** 2 / 4) ** 4)
