"""Two measurements from one: their noise has the stated variance and no covariance."""

import pytest
import torch

from upmri.learning.noise_split import split_noise
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


def problem_of(noise, sigma):
    maps = torch.ones(2, 2, 48, 48, dtype=torch.complex128)
    mask = torch.ones(1, 48, dtype=torch.bool)
    return Problem(SenseOperator(maps, mask), noise, sigma=torch.tensor(sigma).double(), scaled=True, seeds=(3, 4))


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_noise_is_independent(rng, tau):
    sigma = (0.3, 2.0)
    noise = torch.tensor(sigma)[:, None, None, None] * rng(2, 2, 48, 48)
    one, two = split_noise(problem_of(noise, sigma), tau)
    for i, level in enumerate(sigma):
        first, second = one.kspace[i], two.kspace[i]
        for part, data, weight in ((one, first, tau), (two, second, 1 / tau)):
            assert part.sigma[i].item() == pytest.approx(level * (1 + weight**2) ** 0.5)
            assert data.abs().square().mean().item() == pytest.approx(part.sigma[i].item() ** 2, rel=0.06)
        # The standard error of the covariance of 4608 samples is 1.5 % of σ₁σ₂.
        covariance = (first.conj() * second).mean().abs() / (one.sigma[i] * two.sigma[i])
        assert covariance < 0.06


def test_the_signal_stays_and_numbers_are_not_repeated(rng):
    data = rng(2, 2, 48, 48)
    one, two = split_noise(problem_of(data, (1.0, 1.0)), 0.5)
    # (y₁ + τ² y₂)/(1 + τ²) = y
    torch.testing.assert_close((one.kspace + 0.25 * two.kspace) / 1.25, data)
    again = torch.stack([torch.randn(8, generator=generator) for generator in one.generators])
    before = torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(seed)) for seed in (3, 4)])
    assert not torch.equal(again, before)
