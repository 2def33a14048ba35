"""What classical methods over time share: the start and the step of their proximal gradients."""

from __future__ import annotations

from torch import Tensor

from upmri.physics.problem import Problem
from upmri.physics.time_average import average_image, to_frames


def first_image(problem: Problem) -> Tensor:
    """The image of all frames together, in every frame: (series · frame, H, W)."""
    return to_frames(average_image(problem.operator, problem.adjoint, problem.frames), problem.frames)


def step_size(problem: Problem) -> float:
    """τ = 1/‖N‖, for all slices, by a bound of the largest eigenvalue."""
    norm = float(problem.operator.norm_bound().max())
    return 1 / norm if norm > 0 else 1.0
