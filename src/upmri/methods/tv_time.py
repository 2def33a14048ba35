"""Total variation over time: each pixel changes seldom, and then as much as it likes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least, given, whole
from upmri.methods.base import Method
from upmri.methods.temporal import first_image, step_size
from upmri.physics.problem import Problem
from upmri.physics.proximal import accelerated
from upmri.physics.total_variation import smooth_over_time

# λ in units of the noise level: see docs/cine.md for its choice.
_DAMPING = 0.4


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
        at_least(self, 0, *given(self, "damping"))
        whole(self, 1, "steps")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The last iterate."""
        operator, adjoint, frames = problem.operator, problem.adjoint, problem.frames
        lam = _DAMPING * problem.sigma if self.damping is None else torch.full_like(problem.sigma, self.damping)
        tau = step_size(problem)
        threshold = tau * lam[:, None, None]
        dual = torch.zeros_like(adjoint)

        def step(z: Tensor) -> Tensor:
            nonlocal dual
            # The inner iteration continues where that of the last step ended.
            x, dual = smooth_over_time(z + tau * (adjoint - operator.normal(z)), frames, threshold, dual=dual)
            return x

        return accelerated(step, first_image(problem), self.steps) * operator.support
