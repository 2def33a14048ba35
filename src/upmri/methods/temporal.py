"""What classical methods over time share: accelerated proximal gradients, their start and their step."""

from __future__ import annotations

from torch import Tensor

from upmri.methods.l1_wavelet import accelerated as accelerated
from upmri.methods.l1_wavelet import largest_eigenvalue
from upmri.physics.problem import Problem
from upmri.physics.time_average import average_image, to_frames


def first_image(problem: Problem) -> Tensor:
    """The image of all frames together, in every frame: (series · frame, H, W)."""
    return to_frames(average_image(problem.operator, problem.adjoint, problem.frames), problem.frames)


def step_size(problem: Problem) -> float:
    """τ = 1/‖N‖, for all slices, by a bound of the largest eigenvalue."""
    norm = float(largest_eigenvalue(problem.operator, problem.adjoint).max())
    return 1 / norm if norm > 0 else 1.0
