"""Locally low rank: each small part of the image changes over time in few ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.core.checks import at_least
from upmri.methods.base import Method
from upmri.methods.temporal import accelerated, first_image, shrink_singular_values, step_size
from upmri.physics.problem import Problem
from upmri.physics.time_average import by_series

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
        if self.damping is not None:
            at_least(self, 0, "damping")
        at_least(self, 1, "block", "steps")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The last iterate."""
        operator, adjoint, frames = problem.operator, problem.adjoint, problem.frames
        lam = _DAMPING * problem.sigma[::frames] if self.damping is None else self.damping
        tau = step_size(problem)
        threshold = tau * lam * (self.block + math.sqrt(frames))
        generator = problem.generators[0]

        def step(z: Tensor, _: int) -> Tensor:
            shift = torch.randint(self.block, (2,), generator=generator).tolist() if self.shifts else [0, 0]
            return low_rank_blocks(z + tau * (adjoint - operator.normal(z)), frames, self.block, threshold, shift)

        return accelerated(step, first_image(problem), self.steps) * operator.support


def low_rank_blocks(images: Tensor, frames: int, block: int, threshold: float | Tensor, shift: list[int]) -> Tensor:
    """Shrink the singular values of all blocks of series, (series · frame, H, W).

    Parameters
    ----------
    images, frames
        Series, and their number of frames.
    block
        Width of the blocks; the image is continued by zeros to a multiple of it.
    threshold
        Threshold of the singular values, one number or (series,).
    shift
        Shift of the grid of blocks, (rows, columns).
    """
    h, w = images.shape[-2:]
    padded = pad(images, (0, -w % block, 0, -h % block)).roll(shift, (-2, -1))
    rows, columns = padded.shape[-2] // block, padded.shape[-1] // block
    parts = by_series(padded, frames).unflatten(-1, (columns, block)).unflatten(-3, (rows, block))
    matrices = parts.permute(0, 2, 4, 3, 5, 1).flatten(3, 4)  # (series, row, column, pixel, frame)
    limit = threshold[:, None, None] if isinstance(threshold, Tensor) else threshold
    shrunk = shrink_singular_values(matrices, limit).unflatten(3, (block, block)).permute(0, 5, 1, 3, 2, 4)
    back = shrunk.reshape(padded.shape).roll([-shift[0], -shift[1]], (-2, -1))
    return back[..., :h, :w]
