"""DDNM⁺ (Wang, Yu and Zhang 2023): a diffusion prior from full images; estimates take their range from the data."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, in_range, positive
from upmri.flow.diffusion import Cosine, DataStep, denoise, noise_loss
from upmri.flow.path import Field, noise
from upmri.learning.training_noise import path_noise
from upmri.methods.backbones import ImageBackbone
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.methods.supervised import full_image
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping
from upmri.physics.solve import per_slice


@dataclass(frozen=True)
class DiffusionObjective(ImageBackbone):
    """Denoising: ‖ε_θ(a_t x₀ + σ_t ε, t) − ε‖² → min over full images x₀, all levels t with equal probability.

    Parameters
    ----------
    size
        Size of the U-Net.
    schedule
        a_t and σ_t.
    """

    schedule: Cosine = field(default_factory=Cosine)
    supervised = True

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error of the predicted noise per pixel, (slice,)."""
        level = self.schedule.draw(problem.generators)
        return noise_loss(network, self.schedule, full_image(problem), path_noise(problem), level)


@dataclass(frozen=True)
class Diffusion(Learned):
    """One draw from noise by a diffusion network, with a data step at every level.

    Parameters
    ----------
    model, steps
        Weights trained with ``method: ddnm``, and the number of evaluations of the network.
    eta
        η, the share of the noise that is drawn anew at each step, 0 (determined by the first noise) to 1.
    """

    needs = "full images"
    evaluations = 100
    objective = DiffusionObjective
    validation: ClassVar[dict[str, Any]] = {"steps": 20}

    steps: int = 100
    eta: float = 0.85

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")
        in_range(self, eta=(0, 1))

    @abstractmethod
    def data_step(self, problem: Problem) -> DataStep:
        """Return the step that combines an estimate with the data."""

    def noise_field(self, objective: Objective, problem: Problem) -> tuple[Field, Cosine]:  # noqa: ARG002
        """Return the network that predicts the noise, and its schedule."""
        assert isinstance(objective, DiffusionObjective)  # noqa: S101  `prior` has checked it
        return self.prior.network, objective.schedule

    def reconstruct(self, problem: Problem) -> Tensor:
        """One draw, from noise in the whole image."""
        network, schedule = self.noise_field(self.prior.objective, problem)
        return denoise(
            network, schedule, noise(problem.adjoint, problem.generators), self.data_step(problem),
            steps=self.steps, eta=self.eta, generators=problem.generators,
        )  # fmt: skip


@dataclass(frozen=True)
class Ddnm(Diffusion):
    """One draw: at every level the range of A* comes from the data, and the null space from the network's estimate.

    The final image is the network's own where the data are noisy, and consistent with the data where they are not; see
    :func:`range_step`.

    Parameters
    ----------
    model, steps, eta
        Weights, evaluations, and the share of the noise that is drawn anew.
    damping
        λ in A⁺ = (N + λI)⁻¹ A*; that of SENSE, from σ₀, when not given.
    """

    name = "ddnm"
    summary = "a diffusion prior, estimates made consistent by the pseudo-inverse (DDNM⁺, Wang 2023)"

    damping: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.damping is not None:
            positive(self, "damping")

    def data_step(self, problem: Problem) -> DataStep:
        """DDNM⁺."""
        damping = sense_damping(problem.sigma) if self.damping is None else self.damping
        return range_step(problem.operator, problem.adjoint, problem.sigma, damping)


def range_step(operator: Operator, adjoint: Tensor, sigma: Tensor, damping: float | Tensor) -> DataStep:
    """x̃₀ = x̂₀ − μ A⁺(A x̂₀ − y), and the standard deviation g of the noise that is still to be added.

    The noise of the data, σ_y = σ₀/√2 per channel, is part of them: a' σ_y of the σ' of the next level. So

        μ = 1,             g² = σ'² − a'² σ_y²    where σ' ≥ a' σ_y,
        μ = σ'/(a' σ_y),   g = 0                  below, for example at the last step (σ' = 0).

    This is the rule for singular values of 1. Where those of A are smaller, A⁺ amplifies the noise, limited by its
    damping.

    Parameters
    ----------
    operator, adjoint, sigma
        A, A*y, (…, slice, H, W), and σ₀, (slice,).
    damping
        λ in A⁺ = (N + λI)⁻¹ A*.
    """
    support, channel = operator.support, sigma / math.sqrt(2)

    def step(guess: Tensor, a: float, level: float) -> tuple[Tensor, Tensor]:
        guess, known = support * guess, a * channel
        share = torch.where(level >= known, 1.0, level / known)
        back = operator.solve(operator.normal(guess) - adjoint, damping)
        return guess - per_slice(share, guess) * back, (level**2 - known.square()).clamp_min(0).sqrt()

    return step
