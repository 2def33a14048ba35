"""GRAPPA against least squares point by point, pygrappa where it is installed, and coil maps without noise."""

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

import upmri
from upmri import InputError
from upmri.physics.fourier import fft2c
from upmri.physics.grappa import covariance_of_block, covariance_of_maps, fill
from upmri.physics.masks import equispaced, random_lines

H, W = 20, 24


@pytest.fixture(scope="module")
def full():
    """K-space of four coils, (coil, H, W), in double precision."""
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=1, noise=0.01)
    kspace = scan.kspace[0].to(torch.complex128)
    h, w = kspace.shape[-2:]
    return kspace[:, h // 2 - H // 2 : h // 2 + H // 2, w // 2 - W // 2 : w // 2 + W // 2]


def by_hand(kspace, mask, block, reach, damping, most):
    """Fill in point by point: a least squares of its own for each, in NumPy, with rows for the damping."""
    coils, h, w = kspace.shape
    out = kspace.copy()
    steps = [(i, j) for i in range(-reach[0], reach[0] + 1) for j in range(-reach[1], reach[1] + 1)]
    for row, column in zip(*np.nonzero(~mask), strict=True):
        inside = [s for s in steps if 0 <= row + s[0] < h and 0 <= column + s[1] < w]
        sampled = [s for s in inside if mask[row + s[0], column + s[1]]]
        sampled = sorted(sampled, key=lambda s: (s[0] ** 2 + s[1] ** 2, s))[:most]
        if not sampled:
            continue
        sources, targets = [], []
        for top in range(reach[0], block.shape[1] - reach[0]):
            for left in range(reach[1], block.shape[2] - reach[1]):
                sources.append(np.concatenate([block[:, top + i, left + j] for i, j in sampled]))
                targets.append(block[:, top, left])
        matrix, right = np.array(sources), np.array(targets)
        n = matrix.shape[1]
        ridge = damping * np.linalg.norm(matrix.conj().T @ matrix) / n
        matrix = np.concatenate([matrix, np.sqrt(ridge) * np.eye(n)])
        right = np.concatenate([right, np.zeros((n, coils))])
        weights = np.linalg.lstsq(matrix, right, rcond=None)[0]
        out[:, row, column] = np.concatenate([kspace[:, row + i, column + j] for i, j in sampled]) @ weights
    return out


@pytest.mark.parametrize("most", [4, 99])
def test_points_are_those_of_least_squares(full, most):
    mask = torch.rand(H, W, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[5:15, 6:18] = True
    block = full[:, 5:15, 6:18]
    found = fill(full * mask, mask, covariance_of_block(block, (1, 2)), (1, 2), damping=0.01, most=most)
    expected = by_hand((full * mask).numpy(), mask.numpy(), block.numpy(), (1, 2), 0.01, most)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9 * full.abs().max().item())


@pytest.mark.parametrize("mask", [equispaced(W, 2, 10), equispaced(W, 3, 10), random_lines(W, 2, 8)])
def test_lines_are_those_of_least_squares(full, mask):
    columns = slice(W // 2 - 4, W // 2 + 4)
    reach, block = (1, 3), full[..., columns]
    found = fill(full * mask, mask, covariance_of_block(block, reach), reach, damping=0.03, most=99)
    points = mask.expand(H, W)
    expected = by_hand((full * mask).numpy(), points.numpy(), block.numpy(), reach, 0.03, 99)
    # In the first and the last row lines count as zeros beyond the edge, points as not sampled.
    np.testing.assert_allclose(found.numpy()[:, 1:-1], expected[:, 1:-1], atol=1e-9 * full.abs().max().item())
    same = fill(full * mask, points, covariance_of_block(block, reach), reach, damping=0.03, most=99)
    np.testing.assert_allclose(same.numpy(), expected, atol=1e-9 * full.abs().max().item())


@pytest.mark.parametrize("kind", ["lines", "points"])
def test_it_agrees_with_pygrappa(full, kind):
    pygrappa = pytest.importorskip("pygrappa")
    mask = torch.rand(H, W, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[:, ::2] |= kind == "lines"
    mask &= torch.arange(W) % 2 == 0 if kind == "lines" else True
    mask[5:15, 6:18] = True
    block = full[:, 5:15, 6:18]
    theirs = pygrappa.mdgrappa((full * mask).numpy(), block.numpy(), kernel_size=(5, 5), coil_axis=0, lamda=0.01)
    covariance = covariance_of_block(pad(block, (2, 2, 2, 2)), (2, 2))  # pygrappa pads its calibration data with zeros
    ours = fill(full * mask, mask, covariance, (2, 2), damping=0.01, most=99)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-9 * full.abs().max().item())


def test_the_covariance_of_maps_is_that_of_white_images(rng):
    """The mean over white images is the sum over images with one bright pixel."""
    maps = rng(2, 6, 8)
    images = torch.eye(6 * 8, dtype=torch.complex128).reshape(-1, 1, 6, 8)
    patches = fft2c(maps * images)[:, :, 2:5, 2:7].permute(0, 2, 3, 1).reshape(6 * 8, -1)
    found = covariance_of_maps(maps, (1, 2)) / (6 * 8)  # the transform is orthonormal
    torch.testing.assert_close(found, patches.mH @ patches)


def test_maps_of_enough_coils_give_k_space_exactly(rng):
    """As many smooth coils as lines are missing, and a kernel that spans them: nothing is lost without noise."""
    h, w = 8, 12
    angles = 2 * torch.pi * (torch.arange(w) - w // 2).double() / w
    maps = torch.stack([torch.exp(1j * n * angles) for n in (0, 1)])[:, None].expand(2, h, w) / 2**0.5
    kspace = fft2c(maps * rng(h, w))
    mask = torch.arange(w)[None] % 2 == 0
    found = fill(kspace * mask, mask, covariance_of_maps(maps, (0, 3)), (0, 3), damping=1e-12, most=4)
    assert (found - kspace)[..., 1:-1].norm() < 1e-6 * kspace.norm()


def test_data_in_double_precision_with_a_covariance_in_single(full):
    mask, block = equispaced(W, 2, 8), full[..., 8:16]
    covariance = covariance_of_block(block, (1, 2))
    expected = fill(full * mask, mask, covariance, (1, 2), damping=0.01, most=4)
    found = fill(full * mask, mask, covariance.to(torch.complex64), (1, 2), damping=0.01, most=4)
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_noise_shrinks_what_is_filled_in(full):
    mask, reach = equispaced(W, 2, 10), (1, 3)
    covariance = covariance_of_block(full[..., 7:17], reach)
    sizes = [
        (fill(full * mask, mask, covariance, reach, damping=1e-3, most=4, sigma=sigma) - full * mask).norm().item()
        for sigma in (0.0, 0.1 * full.abs().mean().item(), 100 * full.abs().max().item())
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 1e-2 * sizes[0]


def test_what_has_no_sample_near_stays_zero_and_dead_coils_do_no_harm(full):
    mask = torch.zeros(1, W, dtype=torch.bool)
    mask[0, 8:16] = True
    kspace = full * mask
    kspace[1] = 0
    found = fill(kspace, mask, covariance_of_block(kspace[..., 8:16], (1, 2)), (1, 2), damping=0.01, most=4)
    assert found.isfinite().all()
    assert (found[1] == 0).all()
    assert (found[..., :6] == 0).all()
    assert (found[0, :, 6:8] != 0).all()


def test_a_block_that_is_too_small_is_refused(full):
    with pytest.raises(InputError, match="5×7"):
        covariance_of_block(full[..., :6], (2, 3))
