"""Weighted SSDU (Millard and Chiew 2023): samples judge so that, in the mean, all of k-space does."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.partition import SecondMask, energy, misfit, split
from upmri.methods.cascades import Cascades
from upmri.methods.learned import OneEvaluation
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class WeightedSsduLesson(Cascades):
    """The samples Ω of a scan are masked again, anew every step, by a mask Λ of the same family: what it leaves judges.

        ‖w M_{Ω∖Λ} (F S f(A_{Ω∩Λ}*y) − y)‖² / ‖y_Ω‖² → min,    w = √((1−p p̃)/(p (1−p̃))).

    The calibration region is in Λ throughout. p is found for each scan, as the share of the lines outside that region
    which were sampled, so w is one number a scan: it makes scans of different accelerations count as they should. It
    would vary within a scan only if lines were drawn at a density that varies, which this does not find out.

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    kept
        p̃, the probability that a line outside the calibration region is in Λ.
    """

    kept: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.kept < 1:
            raise InputError(f"lesson.kept: expected a probability between 0 and 1, got {self.kept}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The weighted error on Ω∖Λ relative to the energy of Ω, (slice,)."""
        second, readout = SecondMask(self.kept), batch.kspace.shape[-2]
        given, judged = split(second.draw, batch.lines, readout, batch.generators)
        given, judged = given.to(batch.mask.device), judged.to(batch.mask.device)
        square = batch.sigma.new_tensor([second.weight(mask, readout) ** 2 for mask in batch.lines])
        theta = SenseOperator(batch.maps, given)
        prediction = network(theta, theta.adjoint(batch.kspace))
        return square * misfit(prediction, batch.maps, judged, batch.kspace) / energy(batch.mask, batch.kspace)


@dataclass(frozen=True)
class WeightedSsdu(OneEvaluation):
    """One evaluation of the network, with all that was sampled.

    Parameters
    ----------
    model
        A file of weights trained with ``method: weighted-ssdu``.
    """

    name = "weighted-ssdu"
    summary = "SSDU by a second mask, weighted so that what judges stands for all of k-space"
    needs = "undersampled scans, split"
    lesson = WeightedSsduLesson
