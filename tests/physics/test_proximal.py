"""Proximal gradients: their published bound, and soft thresholding in closed form."""

import torch

from upmri.physics.proximal import accelerated, soft


def test_accelerated_gradients_have_the_bound_of_beck_and_teboulle():
    """f(x_K) − f* ≤ 2 ‖x₀ − x*‖²/(τ (K+1)²) for f = ½ Σ d x², which plain steps miss."""
    d, start = torch.tensor([1.0, 0.01, 1e-3]).double(), torch.ones(3).double()
    for steps in (1, 10, 40):
        x = accelerated(lambda z: z - d * z, start, steps)
        assert 0.5 * (d * x.square()).sum() <= 2 * 3 / (steps + 1) ** 2
    assert 0.5 * (d * x.square()).sum() < 0.2 * 0.5 * (d * ((1 - d) ** 40 * start).square()).sum()


def test_soft_thresholding_shrinks_the_magnitude_and_keeps_the_phase():
    values = torch.polar(torch.tensor([0.0, 0.5, 1.0, 3.0]), torch.tensor([0.0, 1.0, 2.0, -3.0]))
    expected = torch.polar(torch.tensor([0.0, 0.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 2.0, -3.0]))
    torch.testing.assert_close(soft(values, 1.0), expected)
