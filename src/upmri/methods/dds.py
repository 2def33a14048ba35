"""DDS (Chung, Lee and Ye 2024): the diffusion prior of ``ddnm``, with a proximal step onto the data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.core.checks import positive
from upmri.flow.diffusion import DataStep
from upmri.methods.ddnm import Diffusion
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class ProximalDiffusion(Diffusion):
    """At every level the estimate moves towards the data, x̃₀ = argmin ‖x − x̂₀‖² + w ‖Ax − y‖².

    Parameters
    ----------
    model, samples, steps, eta
        Weights, draws, evaluations, and the share of the noise that is drawn anew.
    weight
        w.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "weight")

    def data_step(self, problem: Problem) -> DataStep:
        """The proximal step."""
        return proximal_step(problem.operator, problem.adjoint, self.weight)


@dataclass(frozen=True)
class Dds(ProximalDiffusion):
    """The proximal step with the network of ``ddnm``.

    The published method stops conjugate gradients after a few iterations; here the minimum is found exactly.

    Parameters
    ----------
    model, samples, steps, eta, weight
        See :class:`ProximalDiffusion`.
    """

    name = "dds"
    summary = "the diffusion prior of ddnm with a proximal step to the data (Chung 2024)"
    weights_of = "ddnm"


def proximal_step(operator: Operator, adjoint: Tensor, weight: float) -> DataStep:
    """x̃₀ = (I + w N)⁻¹ (x̂₀ + w A*y), with all the noise of the next level, σ'."""
    support = operator.support

    def step(guess: Tensor, a: float, level: float) -> tuple[Tensor, float]:  # noqa: ARG001
        return operator.solve(adjoint + support * guess / weight, 1 / weight), level

    return step
