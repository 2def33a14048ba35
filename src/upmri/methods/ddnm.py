"""DDNM⁺ (Wang, Yu and Zhang 2023): a diffusion prior from full images; estimates take their range from the data."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from upmri.core.checks import given, in_range, one_of, positive, whole
from upmri.core.errors import InputError
from upmri.flow.diffusion import Cosine, DataStep, Mixture, denoise, noise_loss
from upmri.flow.path import Field, noise
from upmri.learning.training_noise import path_noise
from upmri.methods.backbones import ImageBackbone
from upmri.methods.base import Objective
from upmri.methods.drawing import Drawing, for_draws
from upmri.methods.supervised import full_image
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.row_spectrum import RowSpectrum
from upmri.physics.sense import SenseOperator, sense_damping
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
class Diffusion(Drawing):
    """Draws from noise by a diffusion network, with a data step at every level.

    Parameters
    ----------
    model, samples
        Weights trained with ``method: ddnm``, and the number of draws, of which the image is the mean.
    steps
        Number of evaluations of the network for a draw.
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
        super().__post_init__()
        whole(self, 1, "steps")
        in_range(self, eta=(0, 1))

    @abstractmethod
    def data_step(self, problem: Problem) -> DataStep:
        """Return the step that combines an estimate with the data."""

    def noise_field(self, objective: Objective, problem: Problem) -> tuple[Field, Cosine]:  # noqa: ARG002
        """Return the network that predicts the noise, and its schedule."""
        assert isinstance(objective, DiffusionObjective)  # noqa: S101  `prior` has checked it
        return self.prior.network, objective.schedule

    def draw(self, problem: Problem, count: int) -> Tensor:
        """Draws from noise in the whole image."""
        network, schedule = self.noise_field(self.prior.objective, problem)
        return denoise(
            network, schedule, noise(for_draws(problem.adjoint, count), problem.generators), self.data_step(problem),
            steps=self.steps, eta=self.eta, generators=problem.generators,
        )  # fmt: skip


@dataclass(frozen=True)
class Ddnm(Diffusion):
    """At every level the range of A* comes from the data, and the null space from the network's estimate.

    The final image is the network's own where the data are noisy, and consistent with the data where they are not.

    Parameters
    ----------
    model, samples, steps, eta
        Weights, draws, evaluations, and the share of the noise that is drawn anew.
    singular_values
        Singular values of A in the rule for the noise of the data: ``one``, 1 for all of them, with a damped A⁺
        (:func:`range_step`); ``rows``, those of A, as published, from the eigenvalues of N by readout rows
        (:func:`spectral_step`), for masks of lines.
    cutoff
        Smallest singular value of ``rows``; smaller ones count as 0. The rule knows of the noise in directions that the
        coils hardly see, but not of the errors of estimated coil maps, which are larger there.
    damping
        λ in A⁺ = (N + λI)⁻¹ A* of ``one``; that of SENSE, from σ₀, when not given.
    """

    name = "ddnm"
    summary = "a diffusion prior, estimates made consistent by the pseudo-inverse (DDNM⁺, Wang 2023)"

    singular_values: Literal["one", "rows"] = "one"
    cutoff: float = 0.03
    damping: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, singular_values=("one", "rows"))
        in_range(self, cutoff=(1e-3, 1))
        positive(self, *given(self, "damping"))
        if self.damping is not None and self.singular_values == "rows":
            raise InputError("is for singular_values='one'; with those of A nothing is damped", field="damping")
        if self.cutoff != Ddnm.cutoff and self.singular_values == "one":
            raise InputError("is for singular_values='rows'", field="cutoff")

    def data_step(self, problem: Problem) -> DataStep:
        """DDNM⁺."""
        operator = problem.operator
        if self.singular_values == "rows":
            if not isinstance(operator, SenseOperator):
                raise InputError("the singular values of A are known only for a SenseOperator", field="operator")
            return spectral_step(operator, problem.adjoint, problem.sigma, self.eta, self.cutoff)
        damping = sense_damping(problem.sigma) if self.damping is None else self.damping
        return range_step(operator, problem.adjoint, problem.sigma, damping)


def spectral_step(
    operator: SenseOperator, adjoint: Tensor, sigma: Tensor, eta: float, cutoff: float = 1e-3
) -> DataStep:
    """x̃₀ = x̂₀ − Λ A⁺(A x̂₀ − y), and the noise Φ, both with one number for each right singular vector of A.

    With the singular value s of a direction, the noise of A⁺y in it is σ_y/s, σ_y = σ₀/√2 per channel. It is part of
    the σ' of the next level, and only the rest is added:

        Λ = 1,                          Φ = √(σ'² − a'² σ_y²/s²) n          where σ' ≥ a' σ_y/s,
        Λ = √(1−η²) s σ'/(a' σ_y),      Φ = η σ' n                          where σ' < a' σ_y/s,
        Λ = 0,                          Φ = σ' (η n + √(1−η²) ε̂)            where s = 0.

    So a' x̃₀ + Φ has noise of variance σ'² in every direction that was measured. As Λ A⁺ is at most √(1−η²) σ'/(a' σ_y)
    where s is small, nothing needs damping.

    Parameters
    ----------
    operator, adjoint, sigma
        A with a mask of lines, A*y, (…, slice, H, W), and σ₀, (slice,).
    eta, cutoff
        η, and the smallest s; smaller ones count as 0.
    """
    support, channel, spectrum = operator.support, sigma / math.sqrt(2), RowSpectrum(operator, cutoff)
    kept = math.sqrt(1 - eta**2)

    def step(guess: Tensor, a: float, level: float) -> tuple[Tensor, Mixture]:
        known = a * channel  # 0 without noise: the first case then holds even at σ' = 0

        def correction(e: Tensor, known: Tensor) -> Tensor:  # Λ/s²
            s = e.sqrt()
            share = torch.where(level * s >= known, 1.0, kept * level * s / known)
            return torch.where(e > 0, share / torch.where(e > 0, e, 1), 0)

        def new(e: Tensor, known: Tensor) -> Tensor:
            rest = (level**2 - (known / torch.where(e > 0, e, 1).sqrt()).square()).clamp_min(0).sqrt()
            return torch.where((e > 0) & (level * e.sqrt() >= known), rest, eta * level)

        def old(e: Tensor) -> Tensor:
            return torch.where(e > 0, 0.0, kept * level)

        guess = support * guess
        image = guess - spectrum.apply(operator.normal(guess) - adjoint, correction, known)
        return image, lambda fresh, eps: spectrum.apply(fresh, new, known) + spectrum.apply(eps, old)

    return step


def range_step(operator: Operator, adjoint: Tensor, sigma: Tensor, damping: float | Tensor) -> DataStep:
    """x̃₀ = x̂₀ − μ A⁺(A x̂₀ − y), and the standard deviation g of the noise that is still to be added.

    The noise of the data, σ_y = σ₀/√2 per channel, is part of them: a' σ_y of the σ' of the next level. So

        μ = 1,             g² = σ'² − a'² σ_y²    where σ' ≥ a' σ_y,
        μ = σ'/(a' σ_y),   g = 0                  below, for example at the last step (σ' = 0).

    This is the rule for singular values of 1. Where those of A are smaller, A⁺ amplifies the noise, limited by its
    damping: :func:`spectral_step` has the rule for each of them.

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
