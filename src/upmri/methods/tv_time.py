"""Total variation over time: each pixel changes seldom, and then as much as it likes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least
from upmri.methods.base import Method
from upmri.methods.temporal import first_image, fista, step_size
from upmri.physics.problem import Problem
from upmri.physics.time_average import by_series

# λ in units of the noise level: see docs/cine.md for its choice.
_DAMPING = 0.4
# Steps of the inner iteration, which continues where that of the last step ended.
_INNER = 10


@dataclass(frozen=True)
class TvTime(Method):
    """x = argmin ½‖Ax − y‖² + λ Σ_t ‖x_{t+1} − x_t‖₁, the first frame following the last, by FISTA.

    Parameters
    ----------
    damping
        λ for images that peak near 1; from σ₀ when not given.
    steps
        Number of FISTA steps.
    """

    name = "tv-t"
    summary = "total variation over time, by FISTA, as BART's pics -R T:1024"
    dynamic = True

    damping: float | None = None
    steps: int = 60

    def __post_init__(self) -> None:
        if self.damping is not None:
            at_least(self, 0, "damping")
        at_least(self, 1, "steps")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The last iterate."""
        operator, adjoint, frames = problem.operator, problem.adjoint, problem.frames
        lam = _DAMPING * problem.sigma if self.damping is None else torch.full_like(problem.sigma, self.damping)
        tau = step_size(problem)
        threshold = tau * lam[:, None, None]
        dual = torch.zeros_like(adjoint)

        def step(z: Tensor, _: int) -> Tensor:
            nonlocal dual
            x, dual = smooth_over_time(z + tau * (adjoint - operator.normal(z)), frames, threshold, dual)
            return x

        return fista(step, first_image(problem), self.steps) * operator.support


def smooth_over_time(
    images: Tensor, frames: int, threshold: Tensor, dual: Tensor, steps: int = _INNER
) -> tuple[Tensor, Tensor]:
    """Proximal map argmin_x ½‖x − v‖² + λ‖Dx‖₁ of the differences D over time, by its dual, and the dual variable.

    x = v − D*p with |p| ≤ λ; projected gradients with the step 1/4 = 1/‖D‖² (Chambolle 2004), from the given p.

    Parameters
    ----------
    images, frames
        v, (series · frame, H, W), and the number of frames of a series.
    threshold
        λ, which multiplies images.
    dual
        First p, as the images.
    steps
        Number of steps.
    """
    for _ in range(steps):
        dual = dual + differences(images - differences(dual, frames, adjoint=True), frames) / 4
        dual = dual * (threshold / dual.abs().clamp_min(torch.finfo(dual.real.dtype).tiny)).clamp_max(1)
    return images - differences(dual, frames, adjoint=True), dual


def differences(images: Tensor, frames: int, *, adjoint: bool = False) -> Tensor:
    """D x = x_{t+1} − x_t of series in a circle, (series · frame, H, W), or D*."""
    series = by_series(images, frames)
    return (series.roll(1 if adjoint else -1, 1) - series).flatten(0, 1)
