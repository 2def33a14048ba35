"""What classical methods over time share: accelerated proximal gradients, their start and their step."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from upmri.methods.l1_wavelet import largest_eigenvalue
from upmri.physics.problem import Problem
from upmri.physics.time_average import average_image, to_frames


def accelerated(step: Callable[[Tensor, int], Tensor], start: Tensor, steps: int) -> Tensor:
    """Return x_K of x_k = P(z_k), z_{k+1} = x_k + (t_k − 1)/t_{k+1} (x_k − x_{k−1}) (Beck & Teboulle 2009).

    Parameters
    ----------
    step
        z, k ↦ P(z) = prox(z − τ∇f(z)), one step of proximal gradients.
    start, steps
        First z, and the number of steps K.
    """
    x = z = start
    t = 1.0
    for k in range(steps):
        before, x = x, step(z, k)
        t_next = (1 + math.sqrt(1 + 4 * t**2)) / 2
        z = x + (t - 1) / t_next * (x - before)
        t = t_next
    return x


def first_image(problem: Problem) -> Tensor:
    """The image of all frames together, in every frame: (series · frame, H, W)."""
    return to_frames(average_image(problem.operator, problem.adjoint, problem.frames), problem.frames)


def step_size(problem: Problem) -> float:
    """τ = 1/‖N‖, for all slices, by a bound of the largest eigenvalue."""
    norm = float(largest_eigenvalue(problem.operator, problem.adjoint).max())
    return 1 / norm if norm > 0 else 1.0
