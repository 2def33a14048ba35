"""MOI (Tachella, Chen and Davies 2022): what one mask does not sample is learnt from the images of others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.partition import energy, outside
from upmri.learning.remeasure import inconsistency
from upmri.learning.sure import sure
from upmri.methods.learned import OneEvaluation
from upmri.methods.unrolls import Unrolls
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class MoiLesson(Unrolls):
    """Multi-operator imaging: the image x̂ = f(A*y), measured again with another mask, must come out as it is.

    With SURE(x̂) the estimate of ‖A (x̂ − x₀)‖², s the share of k-space that was sampled, A_g the same coils with a mask
    drawn anew (:func:`redraw`) and e ~ CN(0, σ₀²),

        [SURE(x̂)/s + α ‖x̂ − f(A_g*(A_g x̂ + e), A_g)‖²] / ‖y‖² → min.

    Means over samples and over pixels so weigh 1 : α, as published, however many coils there are. Without the first
    term f = 0 would be best.

    Parameters
    ----------
    unrolls, layers, width
        Of the network: K, and the layers and channels of its CNN.
    damping
        λ at the start.
    alpha
        α.
    moving
        Let gradients flow through x̂ as the target, too, as published. In short trainings it then hardly learns.
    """

    alpha: float = 1.0
    moving: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1000:
            raise InputError(f"lesson.alpha: expected 0 to 1000, got {self.alpha}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """SURE and the inconsistency between two masks, relative to the energy of the samples, (slice,)."""
        operator, generators, readout = SenseOperator(batch.maps, batch.mask), batch.generators, batch.kspace.shape[-2]
        error, image = sure(network, operator, batch.kspace, batch.sigma, batch.unit_noise(*batch.kspace.shape[1:]))
        masks = [redraw(mask, readout, g) for mask, g in zip(batch.lines, generators, strict=True)]
        other = SenseOperator(batch.maps, torch.stack(masks))
        noise = batch.unit_noise(*batch.kspace.shape[1:])
        gap = inconsistency(network, other, image, batch.sigma, noise, moving=self.moving)
        share = batch.mask.to(error.dtype).mean((1, 2))
        return (error / share + self.alpha * gap) / energy(batch.mask, batch.kspace)


def redraw(mask: Tensor, readout: int, generator: torch.Generator) -> Tensor:
    """Another mask of the family: the same calibration region, and as many lines (or points) outside it, drawn evenly.

    Of scans with random lines that is the family. Equispaced lines and Poisson discs become random ones.

    Parameters
    ----------
    mask
        Bool (1 or H, W), on the CPU.
    readout
        H.
    generator
        Where the lines come from.
    """
    outer = outside(mask, readout)
    free = outer.flatten().nonzero().flatten()
    count = int((mask & outer).sum())
    drawn = mask & ~outer
    drawn.view(-1)[free[torch.randperm(len(free), generator=generator)[:count]]] = True
    return drawn


@dataclass(frozen=True)
class Moi(OneEvaluation):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: moi``.
    """

    name = "moi"
    summary = "a MoDL learnt by SURE, and by measuring its images again with other masks"
    needs = "undersampled scans, many masks"
    lesson = MoiLesson
