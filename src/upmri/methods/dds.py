"""DDS (Chung, Lee and Ye 2024): the diffusion prior of ``ddnm``, with a proximal step onto the data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.core.errors import InputError
from upmri.flow.diffusion import DataStep
from upmri.methods.base import Problem
from upmri.methods.ddnm import Diffusion
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class Dds(Diffusion):
    """One draw: at every level the network's guess is drawn to the data, x̃₀ = argmin ‖x − x̂₀‖² + w ‖Ax − y‖².

    The published method stops conjugate gradients after a few iterations; here the minimum is found exactly.

    Parameters
    ----------
    model, steps, eta
        Weights, evaluations, and the share of the noise that is drawn anew.
    weight
        w.
    """

    name = "dds"
    summary = "the diffusion prior of ddnm, guesses drawn to the data by a proximal step (Chung 2024)"
    weights_of = "ddnm"

    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight > 0:
            raise InputError(f"weight: expected w > 0, got {self.weight}")

    def data_step(self, problem: Problem) -> DataStep:
        """The proximal step."""
        return proximal_step(problem.operator, problem.adjoint, self.weight)


def proximal_step(operator: SenseOperator, adjoint: Tensor, weight: float) -> DataStep:
    """x̃₀ = (I + w N)⁻¹ (x̂₀ + w A*y), with all the noise of the next level, σ'."""
    support = operator.support

    def step(guess: Tensor, a: float, level: float) -> tuple[Tensor, float]:  # noqa: ARG001
        return operator.solve(adjoint + support * guess / weight, 1 / weight), level

    return step
