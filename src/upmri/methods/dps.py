"""DPS (Chung et al. 2023): the diffusion prior of ``ddnm``, pulled to the data at each level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.flow.diffusion import BRIGHTEST, Cosine
from upmri.flow.path import Field, evaluate, noise
from upmri.methods.base import Problem
from upmri.methods.ddnm import DiffusionLesson
from upmri.methods.learned import Learned
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class Dps(Learned):
    """One draw: ancestral sampling, pulled to the data through the network's own derivative.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ddnm``.
    steps
        Evaluations of the network, and of its derivative.
    strength
        ζ, the length of the pull.
    """

    name = "dps"
    summary = "the diffusion prior of ddnm, pulled to the data by the misfit's gradient (Chung 2023)"
    needs = "full images"
    evaluations = 1000
    lesson = DiffusionLesson
    weights_of = "ddnm"

    steps: int = 1000
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        if not self.strength >= 0:
            raise InputError(f"strength: expected ζ ≥ 0, got {self.strength}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """From noise to one image that the data allow."""
        model = self.load(problem)
        assert isinstance(model.lesson, DiffusionLesson)  # noqa: S101  `load` has seen to it
        x, schedule = noise(problem.adjoint, problem.generator), model.lesson.schedule
        for now, then in pairwise(schedule.way_back(self.steps)):
            guess, slope = pull(model.network, schedule, problem.operator, problem.kspace, x, now)
            x = ancestor(schedule, x, guess, now, then, problem.generator) - self.strength * slope
        return problem.operator.support * x


def pull(
    network: Field, schedule: Cosine, operator: SenseOperator, kspace: Tensor, x: Tensor, level: int
) -> tuple[Tensor, Tensor]:
    """x̂₀ = (x_t − σ_t ε_θ(x_t, t))/a_t, and the gradient of ‖y − A x̂₀‖ in x_t, real channels, of each slice.

    The norm and not its square: that is the published step, ζ over the norm, but for a factor 2 in ζ.

    Parameters
    ----------
    network, schedule
        ε_θ and its levels.
    operator, kspace
        A and y, (slice, coil, H, W).
    x, level
        x_t, (slice, H, W), and t.
    """
    a, sigma = schedule.scales(level)
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        guess = (at - sigma * evaluate(network, at, level / schedule.levels)) / a
        guess = guess * (BRIGHTEST / guess.abs().clamp_min(BRIGHTEST))
    gap = operator.forward(guess.detach()) - kspace
    size = torch.linalg.vector_norm(gap, dim=(1, 2, 3)).clamp_min(torch.finfo(gap.real.dtype).tiny)
    (slope,) = torch.autograd.grad(guess, at, operator.adjoint(gap) / size[:, None, None])
    return guess.detach(), slope


def ancestor(schedule: Cosine, x: Tensor, guess: Tensor, now: int, then: int, generator: torch.Generator) -> Tensor:
    """Draw x_t' given x_t and x₀ = x̂₀, t' < t: normal in each channel.

        μ = (a' (1−α) x̂₀ + √α σ'² x_t)/σ²,    d = √(1−α) σ'/σ,    α = ᾱ_t/ᾱ_t',

    are its mean and deviation.

    Parameters
    ----------
    schedule, now, then
        Levels, t and t'.
    x, guess
        x_t and x̂₀, (slice, H, W).
    generator
        Of the noise.
    """
    (a, sigma), (next_a, next_sigma) = schedule.scales(now), schedule.scales(then)
    alpha = (a / next_a) ** 2
    mean = (next_a * (1 - alpha) * guess + math.sqrt(alpha) * next_sigma**2 * x) / sigma**2
    return mean + math.sqrt(1 - alpha) * next_sigma / sigma * noise(x, generator)
