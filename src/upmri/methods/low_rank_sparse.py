"""Low rank plus sparse: a background that changes in few ways, and what moves, sparse in temporal frequencies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least, given, whole
from upmri.methods.base import Method
from upmri.methods.temporal import first_image, step_size
from upmri.physics.low_rank import shrink_singular_values
from upmri.physics.problem import Problem
from upmri.physics.proximal import accelerated, soft
from upmri.physics.time_average import by_series, to_frames

# λ_L and λ_S in units of the noise level: see docs/cine.md for their choice.
_LOW_RANK, _SPARSE = 0.05, 0.5


@dataclass(frozen=True)
class LowRankSparse(Method):
    """x = L + S, (L, S) = argmin ½‖A(L + S) − y‖² + λ_L (√HW + √T) ‖L‖_* + λ_S ‖F_t S‖₁ (Otazo et al. 2015).

    L is taken as one matrix of HW pixels in T frames; F_t is the orthonormal Fourier transform over time. Both parts
    are found together by FISTA with half the step of one of them.

    Parameters
    ----------
    low_rank, sparse
        λ_L and λ_S for images that peak near 1; from σ₀ when not given.
    steps
        Number of FISTA steps.
    """

    name = "l+s"
    summary = "low rank plus sparse temporal frequencies, by FISTA (Otazo 2015)"
    dynamic = True

    low_rank: float | None = None
    sparse: float | None = None
    steps: int = 60

    def __post_init__(self) -> None:
        whole(self, 1, "steps")
        at_least(self, 0, *given(self, "low_rank", "sparse"))

    def reconstruct(self, problem: Problem) -> Tensor:
        """The sum of both parts."""
        low, sparse = self.parts(problem)
        return (low + sparse) * problem.operator.support

    def parts(self, problem: Problem) -> Tensor:
        """L and S, (2, series · frame, H, W)."""
        operator, adjoint, frames = problem.operator, problem.adjoint, problem.frames
        sigma = problem.sigma[::frames]
        low_rank = _LOW_RANK * sigma if self.low_rank is None else torch.full_like(sigma, self.low_rank)
        sparse = _SPARSE * sigma if self.sparse is None else torch.full_like(sigma, self.sparse)
        tau = step_size(problem) / 2
        height, width = adjoint.shape[-2:]
        first = tau * low_rank * (math.sqrt(height * width) + math.sqrt(frames))
        second = to_frames(tau * sparse, frames)[:, None, None]

        def step(z: Tensor) -> Tensor:
            low, moving = z - tau * (operator.normal(z[0] + z[1]) - adjoint)
            casorati = by_series(low, frames).flatten(2).mT
            low = shrink_singular_values(casorati, first).mT.reshape(low.shape)
            return torch.stack([low, over_time(soft(over_time(moving, frames), second), frames, inverse=True)])

        start = first_image(problem)
        return accelerated(step, torch.stack([start, torch.zeros_like(start)]), self.steps)


def over_time(images: Tensor, frames: int, *, inverse: bool = False) -> Tensor:
    """F_t of series (series · frame, H, W), orthonormal, or its inverse."""
    transform = torch.fft.ifft if inverse else torch.fft.fft
    return transform(by_series(images, frames), dim=1, norm="ortho").flatten(0, 1)
