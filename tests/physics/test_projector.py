"""Projectors against those of eigenvectors."""

import pytest
import torch

from upmri.physics.projector import spectral_projector


def test_the_projector_by_matrix_products_is_that_of_the_eigenvectors():
    generator = torch.Generator().manual_seed(0)
    values = torch.logspace(0, -8, 40, dtype=torch.float64)  # the share lies between two of them
    vectors, _ = torch.linalg.qr(torch.randn(3, 40, 40, dtype=torch.complex128, generator=generator))
    scale = torch.tensor([1e-6, 1.0, 1e9], dtype=torch.float64)[:, None, None]
    matrices = scale * (vectors * values) @ vectors.mH
    for share in (4e-4, 0.3):
        kept = vectors[..., values > share]
        found = spectral_projector(matrices.to(torch.complex64), share)
        assert (found - kept @ kept.mH).abs().max() < 1e-4
        assert found.diagonal(dim1=-2, dim2=-1).sum(-1).real.tolist() == pytest.approx([kept.shape[-1]] * 3, rel=1e-4)
