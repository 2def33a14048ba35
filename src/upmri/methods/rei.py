"""REI (Chen, Tachella and Davies 2022): noise is held down by SURE, what was not sampled by turning the image."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.equivariance import TRANSFORMS, Transform, draw_turns, turn_scan
from upmri.learning.partition import energy
from upmri.learning.remeasure import inconsistency
from upmri.learning.sure import sure
from upmri.methods.cascades import Cascades
from upmri.methods.learned import OneEvaluation
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class ReiLesson(Cascades):
    """Robust equivariant imaging: the image x̂ = f(A*y), turned and measured again, must come out as it is.

    With SURE(x̂) the estimate of ‖A (x̂ − x₀)‖², s the share of k-space that was sampled, T a random turn and noise e,

        [SURE(x̂)/s + α ‖T x̂ − f(A_T*(A_T T x̂ + e), A_T)‖²] / ‖y‖² → min.

    Means over samples and over pixels so weigh 1 : α, as published, however many coils there are. A_T = M F (T S) has
    the scan's lines, and its maps turned with the image: with the maps left where they were, T x̂ would reach beyond
    their support, where nothing is measured. One turn a slice and step.

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    alpha
        α.
    moving
        Let gradients flow through T x̂ as the target, too, as published; a short training then gained half as much.
    transform
        T: ``rotations`` by any angle, as published, ``turns`` by multiples of 90°, which interpolate nothing, or
        ``flips``, which tell of a line no more than its mirror image does.
    """

    alpha: float = 1.0
    moving: bool = False
    transform: Transform = "rotations"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1000:
            raise InputError(f"lesson.alpha: expected 0 to 1000, got {self.alpha}")
        if self.transform not in TRANSFORMS:
            raise InputError(f"lesson.transform: expected one of {', '.join(TRANSFORMS)}, got {self.transform!r}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """SURE and the inconsistency of the turned image, relative to the energy of the samples, (slice,)."""
        operator, generators = SenseOperator(batch.maps, batch.mask), batch.generators
        error, image = sure(network, operator, batch.kspace, batch.sigma, batch.unit_noise(*batch.kspace.shape[1:]))
        turned, maps = turn_scan(image, batch.maps, draw_turns(self.transform, generators))
        noise = batch.unit_noise(*batch.kspace.shape[1:])
        gap = inconsistency(network, SenseOperator(maps, batch.mask), turned, batch.sigma, noise, moving=self.moving)
        share = batch.mask.to(error.dtype).mean((1, 2))
        return (error / share + self.alpha * gap) / energy(batch.mask, batch.kspace)


@dataclass(frozen=True)
class Rei(OneEvaluation):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: rei``.
    """

    name = "rei"
    summary = "a VarNet learnt by SURE, and by turning its images and measuring them again"
    needs = "undersampled scans"
    lesson = ReiLesson
