"""Thresholds of singular values: against the SVD, block by block, with gradients."""

import torch

from upmri.physics.low_rank import low_rank_blocks, shrink_singular_values


def test_singular_values_are_shrunk(rng):
    matrices = rng(3, 12, 5)
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    expected = (u * (s - 2).clamp_min(0)[:, None]) @ vh
    assert torch.allclose(shrink_singular_values(matrices, 2.0), expected)
    assert torch.allclose(shrink_singular_values(matrices, torch.full((3,), 2.0)), expected)


def test_blocks_are_those_of_the_image(rng):
    """Each block by its own singular value decomposition, with an image that is no multiple of the blocks."""
    images, threshold = rng(2 * 3, 10, 7), 1.5
    found = low_rank_blocks(images, 3, 4, threshold, [0, 0])
    for series in range(2):
        frames = images[3 * series : 3 * series + 3]
        for row in range(0, 10, 4):
            for column in range(0, 7, 4):
                where = (..., slice(row, row + 4), slice(column, column + 4))
                part = frames[where]
                u, s, vh = torch.linalg.svd(part.flatten(1).mT, full_matrices=False)
                expected = ((u * (s - threshold).clamp_min(0)) @ vh).mT.reshape(part.shape)
                assert torch.allclose(found[3 * series : 3 * series + 3][where], expected)


def test_shifted_blocks_are_blocks_of_the_shifted_image(rng):
    images = rng(3, 8, 8)
    rolled = low_rank_blocks(images.roll((1, 2), (-2, -1)), 3, 4, 1.0, [0, 0])
    assert torch.allclose(low_rank_blocks(images, 3, 4, 1.0, [1, 2]), rolled.roll((-1, -2), (-2, -1)))


def test_gradients_flow_to_threshold_and_matrices_and_stay_finite(rng):
    matrices = rng(2, 6, 4).requires_grad_()
    threshold = torch.tensor(0.7, requires_grad=True)
    shrink_singular_values(matrices, threshold).abs().square().sum().backward()
    sigma = torch.linalg.svdvals(matrices.detach())
    assert torch.allclose(threshold.grad, -2 * (sigma - 0.7).clamp_min(0).sum().float())  # d/dλ Σ (σ − λ)₊²
    zero = torch.zeros(1, 3, 2, dtype=torch.complex64, requires_grad=True)
    shrink_singular_values(zero, threshold).abs().square().sum().backward()
    assert zero.grad.isfinite().all()
    assert threshold.grad.isfinite()
