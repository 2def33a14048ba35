"""DPS (Chung et al. 2023): the diffusion prior of ``ddnm``, with a gradient step to the data at each level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from upmri.core.checks import at_least, whole
from upmri.flow.diffusion import BRIGHTEST, Cosine
from upmri.flow.path import Field, evaluate_field, noise
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.drawing import Drawing, for_draws
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class Dps(Drawing):
    """Ancestral sampling with the gradient of the data misfit, through the network's derivative.

    Parameters
    ----------
    model, samples
        Weights trained with ``method: ddnm``, and the number of draws, of which the image is the mean.
    steps, strength
        Number of evaluations of the network and of its derivative for a draw, and ζ, the length of the gradient step.
    """

    name = "dps"
    summary = "the diffusion prior of ddnm, with gradient steps on the data misfit (Chung 2023)"
    needs = "full images"
    evaluations = 1000
    objective = DiffusionObjective
    weights_of = "ddnm"

    steps: int = 1000
    strength: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "steps")
        at_least(self, 0, "strength")

    def draw(self, problem: Problem, count: int) -> Tensor:
        """Draws from noise."""
        network, objective = self.prior.network, self.prior.objective
        assert isinstance(objective, DiffusionObjective)  # noqa: S101  `prior` has checked it
        x, schedule = noise(for_draws(problem.adjoint, count), problem.generators), objective.schedule
        kspace = problem.samples
        for now, then in pairwise(schedule.way_back(self.steps)):
            guess, slope = misfit_gradient(network, schedule, problem.operator, kspace, x, now)
            x = ancestor(schedule, x, guess, now, then, problem.generators) - self.strength * slope
        return problem.operator.support * x


def misfit_gradient(
    network: Field, schedule: Cosine, operator: Operator, kspace: Tensor, x: Tensor, level: int
) -> tuple[Tensor, Tensor]:
    """x̂₀ = (x_t − σ_t ε_θ(x_t, t))/a_t, and the gradient of ‖y − A x̂₀‖ in x_t, real channels, of each slice.

    The norm and not its square: that is the published step, ζ over the norm, but for a factor 2 in ζ.

    Parameters
    ----------
    network, schedule
        ε_θ and its levels.
    operator, kspace
        A and y, (slice, coil, H, W), 0 where nothing was sampled.
    x, level
        x_t, (…, slice, H, W), and t.
    """
    a, sigma = schedule.scales(level)
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        guess = (at - sigma * evaluate_field(network, at, level / schedule.levels)) / a
        guess = guess * (BRIGHTEST / guess.abs().clamp_min(BRIGHTEST))
    gap = operator(guess.detach()) - kspace
    size = torch.linalg.vector_norm(gap.flatten(-3), dim=-1).clamp_min(torch.finfo(gap.real.dtype).tiny)
    (slope,) = torch.autograd.grad(guess, at, operator.H(gap) / size[..., None, None])
    return guess.detach(), slope


def ancestor(
    schedule: Cosine, x: Tensor, guess: Tensor, now: int, then: int, generators: Sequence[torch.Generator]
) -> Tensor:
    """Draw x_t' given x_t and x₀ = x̂₀, t' < t: normal in each channel.

        μ = (a' (1−α) x̂₀ + √α σ'² x_t)/σ²,    d = √(1−α) σ'/σ,    α = ᾱ_t/ᾱ_t',

    are its mean and deviation.

    Parameters
    ----------
    schedule, now, then
        Schedule and its levels t and t'.
    x, guess
        x_t and x̂₀, (…, slice, H, W).
    generators
        One random generator per slice.
    """
    (a, sigma), (next_a, next_sigma) = schedule.scales(now), schedule.scales(then)
    alpha = (a / next_a) ** 2
    mean = (next_a * (1 - alpha) * guess + math.sqrt(alpha) * next_sigma**2 * x) / sigma**2
    return mean + math.sqrt(1 - alpha) * next_sigma / sigma * noise(x, generators)
