"""SENSE with Tikhonov damping, solved exactly."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.core.checks import given, positive
from upmri.methods.base import Method
from upmri.physics.partial_fourier import constrain
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping


@dataclass(frozen=True)
class Sense(Method):
    """x = argmin ‖Ax − y‖² + λ‖x‖² = (N + λI)⁻¹ A*y.

    Parameters
    ----------
    damping
        λ for images that peak near 1; from σ₀ when not given.
    partial_fourier
        Whether to use the expected phase where one side of k-space was not acquired
        (:mod:`upmri.physics.partial_fourier`).
    """

    name = "sense"
    summary = "least squares with Tikhonov damping, solved exactly (Pruessmann 1999)"

    damping: float | None = None
    partial_fourier: bool = True

    def __post_init__(self) -> None:
        positive(self, *given(self, "damping"))

    def reconstruct(self, problem: Problem) -> Tensor:
        """(N + λI)⁻¹ A*y."""
        damping = sense_damping(problem.sigma) if self.damping is None else self.damping
        problem = constrain(problem) if self.partial_fourier else problem
        return problem.operator.solve(problem.adjoint, damping)
