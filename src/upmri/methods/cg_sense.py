"""SENSE by a few conjugate gradient steps: stopping early is the regularisation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.core.checks import whole
from upmri.methods.base import Method
from upmri.physics.problem import Problem
from upmri.physics.solve import conjugate_gradients


@dataclass(frozen=True)
class CgSense(Method):
    """k steps of conjugate gradients on N x = A*y from x = 0.

    Parameters
    ----------
    steps
        k; more steps resolve more and amplify more noise.
    """

    name = "cg-sense"
    summary = "conjugate gradients on the normal equations, stopped early (Pruessmann 2001)"

    steps: int = 10

    def __post_init__(self) -> None:
        whole(self, 1, "steps")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The k-th iterate."""
        return conjugate_gradients(problem.operator.normal, problem.adjoint, 0.0, iterations=self.steps)
