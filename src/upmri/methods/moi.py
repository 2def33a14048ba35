"""MOI (Tachella, Chen and Davies 2022): the part that one mask does not sample is learned from scans with others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.core.checks import in_range
from upmri.learning.regions import draw_per_slice, outside_calibration
from upmri.learning.remeasure import inconsistency, sure_with_consistency
from upmri.methods.backbones import MoDLBackbone
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class MoiObjective(MoDLBackbone):
    """Multi-operator imaging: the image x̂ = f(A*y), measured with another mask, must be reconstructed unchanged.

    With SURE(x̂) the estimate of ‖A (x̂ − x₀)‖², s the share of k-space that was sampled, A_g the same coils with a new
    random mask (:func:`redraw`) and e ~ CN(0, σ₀²),

        [SURE(x̂)/s + α ‖x̂ − f(A_g*(A_g x̂ + e), A_g)‖²] / ‖y‖² → min.

    Means over samples and over pixels have weights 1 : α, as published, for any number of coils. Without the first
    term f = 0 would be optimal.

    Parameters
    ----------
    backbone, unrolls, layers, width, damping
        Network, see :class:`~upmri.methods.backbones.MoDLBackbone`.
    alpha
        α.
    moving
        Whether gradients flow through x̂ as the target, too, as published. A short training then hardly improves.
    """

    alpha: float = 1.0
    moving: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, alpha=(0, 1000))

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """SURE and the inconsistency between two masks, relative to the energy of the samples, (slice,)."""
        predict = self.predictor(network, problem)

        def gap(image: Tensor) -> Tensor:
            masks = torch.stack(draw_per_slice(redraw, problem))
            noise = problem.unit_noise(*problem.kspace.shape[1:])
            other = problem.operator.restrict(masks)
            return inconsistency(predict, other, image, problem.sigma, noise, moving=self.moving)

        return sure_with_consistency(predict, problem, gap, self.alpha)


def redraw(mask: Tensor, readout: int, generator: torch.Generator) -> Tensor:
    """Return a mask with the same calibration region and the same number of lines (or points) outside, at random.

    It is of the same family where the scan's lines are random. Equispaced lines and Poisson discs become random ones.

    Parameters
    ----------
    mask, readout
        Bool mask (1 or H, W) on the CPU, and H.
    generator
        Random generator for the lines.
    """
    outer = outside_calibration(mask, readout)
    free = outer.flatten().nonzero().flatten()
    count = int((mask & outer).sum())
    drawn = mask & ~outer
    drawn.view(-1)[free[torch.randperm(len(free), generator=generator)[:count]]] = True
    return drawn
