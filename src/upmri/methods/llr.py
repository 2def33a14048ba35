"""Locally low rank: each small part of the image changes over time in few ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least, given, whole
from upmri.methods.base import Method
from upmri.methods.temporal import first_image, step_size
from upmri.physics.low_rank import low_rank_blocks
from upmri.physics.problem import Problem
from upmri.physics.proximal import accelerated

# λ in units of the noise level: see docs/cine.md for its choice.
_DAMPING = 0.12


@dataclass(frozen=True)
class LocallyLowRank(Method):
    """x = argmin ½‖Ax − y‖² + λ (√M + √T) Σ_b ‖X_b‖_*, by FISTA (Zhang, Pauly & Levesque 2015).

    X_b is the matrix of the M pixels of a block, b×b, in T frames, and ‖·‖_* the sum of its singular values. White
    noise of deviation σ has singular values up to σ(√M + √T), hence the factor; that of BART's ``pics -R L`` has one
    more term, √log(B min(M, T)) for B blocks. The blocks tile the image and are shifted at random in each step, which
    avoids their edges in the image.

    Parameters
    ----------
    damping
        λ for images that peak near 1; from σ₀ when not given.
    block
        Width b of a block in pixels.
    steps
        Number of FISTA steps.
    shifts
        Whether blocks are shifted at random; without shifts the result is the minimum above.
    """

    name = "llr"
    summary = "locally low rank over time, by FISTA (Zhang 2015), as BART's pics -R L"
    dynamic = True

    damping: float | None = None
    block: int = 8
    steps: int = 60
    shifts: bool = True

    def __post_init__(self) -> None:
        at_least(self, 0, *given(self, "damping"))
        whole(self, 1, "block", "steps")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The last iterate."""
        operator, adjoint, frames = problem.operator, problem.adjoint, problem.frames
        lam = _DAMPING * problem.sigma[::frames] if self.damping is None else self.damping
        tau = step_size(problem)
        threshold = tau * lam * (self.block + math.sqrt(frames))
        generator = problem.generators[0]

        def step(z: Tensor) -> Tensor:
            shift = torch.randint(self.block, (2,), generator=generator).tolist() if self.shifts else [0, 0]
            return low_rank_blocks(z + tau * (adjoint - operator.normal(z)), frames, self.block, threshold, shift)

        return accelerated(step, first_image(problem), self.steps) * operator.support
