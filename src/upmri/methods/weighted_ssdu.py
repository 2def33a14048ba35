"""Weighted SSDU (Millard and Chiew 2023): a loss on samples whose expectation covers all of k-space."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.checks import fraction
from upmri.learning.partition import SecondMask, energy, misfit, split
from upmri.methods.backbones import VarNetBackbone
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class WeightedSsduObjective(VarNetBackbone):
    """The samples Ω are masked again at every step by a mask Λ of the same family; the rest, Ω∖Λ, forms the loss.

        ‖w M_{Ω∖Λ} (F S f(A_{Ω∩Λ}*y) − y)‖² / ‖y_Ω‖² → min,    w = √((1−p p̃)/(p (1−p̃))).

    The calibration region is always in Λ. p is the share of the lines outside that region that a scan sampled, so w is
    one number per scan: it gives scans of different accelerations their weight. It would vary within a scan only if
    lines were drawn with a varying density, which is not estimated here.

    Parameters
    ----------
    backbone, cascades, width
        Network, see :class:`~upmri.methods.backbones.VarNetBackbone`.
    kept
        p̃, the probability that a line outside the calibration region is in Λ.
    """

    kept: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "kept")

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Weighted error on Ω∖Λ relative to the energy of Ω, (slice,)."""
        second = SecondMask(self.kept)
        inputs, loss = split(second.draw, problem)
        prediction = self.predictor(network, problem)(inputs.operator, inputs.adjoint)
        return second.squared_weights(problem) * misfit(prediction, loss) / energy(problem)
