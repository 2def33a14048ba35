"""REI (Chen, Tachella and Davies 2022): SURE for the sampled part, rotations of the image for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.checks import in_range, one_of
from upmri.learning.equivariance import TRANSFORMS, Transform, draw_turns, turn_scan
from upmri.learning.remeasure import inconsistency, sure_with_consistency
from upmri.methods.backbones import VarNetBackbone
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class ReiObjective(VarNetBackbone):
    """Robust equivariant imaging: the image x̂ = f(A*y), rotated and measured again, must be reconstructed unchanged.

    With SURE(x̂) the estimate of ‖A (x̂ − x₀)‖², s the share of k-space that was sampled, T a random rotation, noise e,

        [SURE(x̂)/s + α ‖T x̂ − f(A_T*(A_T T x̂ + e), A_T)‖²] / ‖y‖² → min.

    Means over samples and over pixels have weights 1 : α, as published, for any number of coils. A_T = M F (T S) has
    the lines of the scan, and its maps rotated with the image: with fixed maps, T x̂ would reach beyond their support,
    where nothing is measured. There is one rotation per slice and step.

    Parameters
    ----------
    backbone, cascades, width
        Network, see :class:`~upmri.methods.backbones.VarNetBackbone`.
    alpha
        α.
    moving
        Whether gradients flow through T x̂ as the target, too, as published; a short training then gained half as much.
    transform
        T: ``rotations`` by any angle, as published, ``turns`` by multiples of 90°, which need no interpolation, or
        ``flips``, with which a line gives information about its mirror image only.
    """

    alpha: float = 1.0
    moving: bool = False
    transform: Transform = "rotations"

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, alpha=(0, 1000))
        one_of(self, transform=TRANSFORMS)

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """SURE and the inconsistency of the rotated image, relative to the energy of the samples, (slice,)."""
        predict = self.predictor(network, problem)

        def gap(image: Tensor) -> Tensor:
            turned, operator = turn_scan(image, problem.operator, draw_turns(self.transform, problem.generators))
            noise = problem.unit_noise(*problem.kspace.shape[1:])
            return inconsistency(predict, operator, turned, problem.sigma, noise, moving=self.moving)

        return sure_with_consistency(predict, problem, gap, self.alpha)
