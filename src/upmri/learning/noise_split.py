"""Two measurements with independent noise from one, to test an image at the positions that were sampled.

With y = A x₀ + e, e ~ CN(0, σ²), and n ~ CN(0, σ²) that is drawn,

    y₁ = y + τ n,    y₂ = y − n/τ

have noise of variance σ²(1 + τ²) and σ²(1 + 1/τ²), and their covariance is σ² − σ² = 0. For an image x̂(y₁) therefore

    E‖A x̂ − y₂‖² = E‖A (x̂ − x₀)‖² + σ² (1 + 1/τ²) · (number of samples).

Lines that are held out test the positions between the sampled ones. They cannot test the calibration region, because
every scan that is reconstructed has it.
"""

from __future__ import annotations

import torch

from upmri.physics.problem import Problem
from upmri.physics.simulate import complex_normal


def split_noise(problem: Problem, tau: float = 1.0) -> tuple[Problem, Problem]:
    """Return the problems of y₁ and y₂, with the noise n drawn by the slices' generators.

    Parameters
    ----------
    problem
        Problem with data and noise level.
    tau
        τ: a small one leaves y₁ like the scan, and a large one makes the test less noisy.
    """
    data = problem.kspace
    shape = (-1, *(1,) * (data.ndim - 1))
    drawn = torch.stack([complex_normal(tuple(data.shape[1:]), generator) for generator in problem.generators]).to(data)
    noise = problem.sigma.reshape(shape) * drawn
    # New seeds: generators that start again from the old ones would repeat the numbers of n.
    seeds = [int(torch.randint(2**62, (), generator=generator)) for generator in problem.generators]

    def part(weight: float) -> Problem:
        sigma = problem.sigma * (1 + weight**2) ** 0.5
        return problem.derived(problem.operator, data + weight * noise, sigma=sigma, seeds=seeds)

    return part(tau), part(-1 / tau)
