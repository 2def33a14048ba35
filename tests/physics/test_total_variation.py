"""Differences over time and their proximal map."""

import pytest
import torch

from upmri.physics.total_variation import differences, smooth_over_time

FRAMES = 6


@pytest.mark.parametrize("periodic", [True, False])
def test_differences_and_their_adjoint(rng, periodic):
    x, y = rng(2 * FRAMES, 3, 4), rng(2 * FRAMES, 3, 4)
    forward, back = differences(x, FRAMES, periodic=periodic), differences(y, FRAMES, adjoint=True, periodic=periodic)
    assert torch.allclose(torch.vdot(y.flatten(), forward.flatten()), torch.vdot(back.flatten(), x.flatten()))
    assert torch.allclose(forward[0], x[1] - x[0])
    assert torch.allclose(forward[FRAMES - 1], (x[0] - x[FRAMES - 1]) * periodic)


@pytest.mark.parametrize(("periodic", "shift"), [(True, 0.4), (False, 0.2)])
def test_a_jump_shrinks_by_the_threshold_over_its_length(periodic, shift):
    """Of two values, each in three frames, each moves by λ/3 towards the other for each jump between them."""
    values = torch.tensor([0, 0, 0, 3, 3, 3], dtype=torch.complex128).reshape(6, 1, 1)
    found, _ = smooth_over_time(values, 6, torch.tensor(0.6), steps=800, periodic=periodic)
    expected = torch.tensor([shift] * 3 + [3 - shift] * 3, dtype=torch.complex128).reshape(6, 1, 1)
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_large_threshold_leaves_the_mean_and_none_the_images(rng):
    images = rng(FRAMES, 2, 2)
    smooth, dual = smooth_over_time(images, FRAMES, torch.tensor(1e3), steps=2000)
    assert torch.allclose(smooth, images.mean(0).expand_as(images), atol=1e-5)
    assert dual.abs().max() < 1e3
    assert torch.allclose(smooth_over_time(images, FRAMES, torch.tensor(0.0))[0], images)


def test_thresholds_may_differ_between_pixels(rng):
    images = rng(FRAMES, 1, 2)
    threshold = torch.tensor([0.0, 0.3])
    found, _ = smooth_over_time(images, FRAMES, threshold, steps=300)
    assert torch.allclose(found[..., :1], images[..., :1])
    alone, _ = smooth_over_time(images[..., 1:], FRAMES, torch.tensor(0.3), steps=300)
    assert torch.allclose(found[..., 1:], alone)


def test_gradients_are_finite_where_nothing_changes():
    images = torch.zeros(FRAMES, 2, 2, dtype=torch.complex64, requires_grad=True)
    threshold = torch.full((FRAMES, 2, 2), 0.01, requires_grad=True)
    smooth_over_time(images, FRAMES, threshold)[0].abs().square().sum().backward()
    assert images.grad.isfinite().all()
    assert threshold.grad.isfinite().all()
