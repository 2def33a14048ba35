"""SSDU (Yaman et al. 2020): an unrolled network trained on undersampled scans, some samples of which form the loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.core.checks import fraction
from upmri.learning.partition import Density, Kind, Partition, energy, misfit, split
from upmri.methods.backbones import VarNetBackbone
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class SsduObjective(VarNetBackbone):
    """The samples Ω of a scan are split anew at every step: Θ is the input, Λ forms the loss.

        ‖A_Λ f(A_Θ*y) − y_Λ‖² / ‖y_Λ‖² → min,

    over all coils; data consistency uses Θ alone, too. The paper adds an L1 term and takes norms instead of squares;
    with squares alone the minimiser is the posterior mean, whatever the noise.

    Parameters
    ----------
    backbone, cascades, width
        Network, see :class:`~upmri.methods.backbones.VarNetBackbone`.
    loss_share
        ρ = |Λ|/|Ω|.
    kind, density
        Elements of Λ: whole ``columns``, or ``points`` as published, with which Θ is no mask of lines; and their
        density, ``uniform`` or ``gaussian`` around DC.
    """

    loss_share: float = 0.4
    kind: Kind = "columns"
    density: Density = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "loss_share")

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error on Λ relative to its energy, (slice,)."""
        inputs, loss = split(Partition(self.loss_share, self.kind, self.density).draw, problem)
        prediction = self.predictor(network, problem)(inputs.operator, inputs.adjoint)
        whole = energy(loss)
        # A scan of the centre alone leaves nothing for Λ: its error is 0.
        return misfit(prediction, loss) / torch.where(whole > 0, whole, 1)
