"""SSDU (Yaman et al. 2020): an unrolled network learnt from undersampled scans, some of whose samples judge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.partition import Density, Kind, Partition, energy, misfit, split
from upmri.methods.cascades import Cascades
from upmri.methods.learned import OneEvaluation
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class SsduLesson(Cascades):
    """The samples Ω of a scan, divided anew every step: Θ enters the network, Λ judges.

        ‖A_Λ f(A_Θ*y) − y_Λ‖² / ‖y_Λ‖² → min,

    over all coils, with Θ alone in the data consistency, too. The paper adds an L1 term and takes norms for squares;
    squares alone make the mean of what the data allow the best answer, whatever the noise.

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    judged
        ρ = |Λ|/|Ω|.
    kind, density
        What is drawn for Λ: whole ``columns``, or ``points`` as published, which leaves Θ no mask of lines; and how
        densely, ``uniform`` or ``gaussian`` around DC.
    """

    judged: float = 0.4
    kind: Kind = "columns"
    density: Density = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.judged < 1:
            raise InputError(f"lesson.judged: expected a share between 0 and 1, got {self.judged}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error on Λ relative to its energy, (slice,)."""
        partition = Partition(self.judged, self.kind, self.density)
        given, judged = split(partition.draw, batch.lines, batch.kspace.shape[-2], batch.generators)
        given, judged = given.to(batch.mask.device), judged.to(batch.mask.device)
        theta = SenseOperator(batch.maps, given)
        prediction = network(theta, theta.adjoint(batch.kspace))
        whole = energy(judged, batch.kspace)
        # Where the middle lines are all there is, none judges: there is no error, relative to nothing.
        return misfit(prediction, batch.maps, judged, batch.kspace) / torch.where(whole > 0, whole, 1)


@dataclass(frozen=True)
class Ssdu(OneEvaluation):
    """One evaluation of the network, with all that was sampled.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ssdu``.
    """

    name = "ssdu"
    summary = "a VarNet learnt from undersampled scans, some samples of which judge what it makes of the rest"
    needs = "undersampled scans, split"
    lesson = SsduLesson
