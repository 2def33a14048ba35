"""DDNM⁺ (Wang, Yu and Zhang 2023): a diffusion prior learnt from full images, whose guesses take the data's range."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.diffusion import Cosine, DataStep, denoise, noise_loss
from upmri.flow.path import noise
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
from upmri.methods.sense import default_damping
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.physics.sense import SenseOperator
from upmri.physics.solve import per_slice
from upmri.training.data import Batch

# Validation looks at an image of so many steps, always from the same noise.
_GLANCE = 20
_ETA = 0.85


@dataclass(frozen=True)
class DiffusionLesson(Lesson):
    """Denoising: ‖ε_θ(a_t x₀ + σ_t ε, t) − ε‖² → min over full images x₀, at levels t that are all as likely.

    Parameters
    ----------
    size
        Of the U-Net.
    schedule
        a_t and σ_t.
    """

    size: str = "small"
    schedule: Cosine = field(default_factory=Cosine)
    supervised = True

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"lesson.size: expected one of {', '.join(SIZES)}, got {self.size!r}")

    def network(self) -> nn.Module:
        """The plain U-Net."""
        return ImageNetwork(self.size)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error of the noise, a pixel, (slice,)."""
        return noise_loss(network, self.schedule, batch.truth, batch.noise(), self.schedule.draw(batch.generators))

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """DDNM⁺ in a few steps."""
        adjoint, generator = operator.adjoint(kspace), torch.Generator().manual_seed(0)
        data_step = range_step(operator, adjoint, sigma, default_damping(sigma))
        start = noise(adjoint, generator)
        return denoise(network, self.schedule, start, data_step, steps=_GLANCE, eta=_ETA, generator=generator)


@dataclass(frozen=True)
class Diffusion(Learned):
    """What methods on the weights of ``ddnm`` share.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ddnm``.
    steps
        Evaluations of the network.
    eta
        η: the share of the noise that is drawn anew at each step, 0 (a function of the first noise) to 1.
    """

    needs = "full images"
    evaluations = 100
    lesson = DiffusionLesson

    steps: int = 100
    eta: float = _ETA

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        if not 0 <= self.eta <= 1:
            raise InputError(f"eta: expected 0 to 1, got {self.eta}")

    @abstractmethod
    def data_step(self, problem: Problem) -> DataStep:
        """How the data enter."""

    def reconstruct(self, problem: Problem) -> Tensor:
        """From noise, drawn in the whole image, to one image that the data allow."""
        model, generator = self.load(problem), problem.generator
        assert isinstance(model.lesson, DiffusionLesson)  # noqa: S101  `load` has seen to it
        return denoise(
            model.network, model.lesson.schedule, noise(problem.adjoint, generator), self.data_step(problem),
            steps=self.steps, eta=self.eta, generator=generator,
        )  # fmt: skip


@dataclass(frozen=True)
class Ddnm(Diffusion):
    """One draw: at every level the range of A* is taken from the data, and the null space from the network's guess.

    The image that is left at the end is the network's own where there is noise in the data, and consistent with them
    where there is none; see :func:`range_step`.

    Parameters
    ----------
    model, steps, eta
        Weights, evaluations, and the share of the noise that is drawn anew.
    damping
        λ in A⁺ = (N + λI)⁻¹ A*; SENSE's, from σ₀, when not given.
    """

    name = "ddnm"
    summary = "a diffusion prior, guesses made consistent by the pseudo-inverse (DDNM⁺, Wang 2023)"

    damping: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.damping is not None and not self.damping > 0:
            raise InputError(f"damping: expected λ > 0, got {self.damping}")

    def data_step(self, problem: Problem) -> DataStep:
        """DDNM⁺."""
        damping = default_damping(problem.sigma) if self.damping is None else self.damping
        return range_step(problem.operator, problem.adjoint, problem.sigma, damping)


def range_step(operator: SenseOperator, adjoint: Tensor, sigma: Tensor, damping: float | Tensor) -> DataStep:
    """x̃₀ = x̂₀ − μ A⁺(A x̂₀ − y), with as much noise as it then lacks.

    The data's noise, σ_y = σ₀/√2 a channel, comes with them: a' σ_y of the σ' that the next level is to have. So

        μ = 1,             g² = σ'² − a'² σ_y²    where σ' ≥ a' σ_y,
        μ = σ'/(a' σ_y),   g = 0                  below, the last step (σ' = 0) among them.

    That is the rule for singular values of 1; where those of A are smaller, A⁺ makes the noise larger, and only its
    damping holds it.

    Parameters
    ----------
    operator, adjoint, sigma
        A, A*y, (…, slice, H, W), and σ₀, (slice,).
    damping
        λ in A⁺ = (N + λI)⁻¹ A*.
    """
    support, channel = operator.support, sigma / math.sqrt(2)

    def step(guess: Tensor, a: float, level: float) -> tuple[Tensor, Tensor]:
        guess, told = support * guess, a * channel
        share = torch.where(level >= told, 1.0, level / told)
        back = operator.solve(operator.normal(guess) - adjoint, damping)
        return guess - per_slice(share, guess) * back, (level**2 - told.square()).clamp_min(0).sqrt()

    return step
