"""Robust SSDU (Millard and Chiew 2024): Weighted SSDU that also learns to remove the noise, from noisy scans alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.partition import SecondMask, energy, misfit, split
from upmri.methods.base import Problem
from upmri.methods.cascades import Cascades
from upmri.methods.learned import Learned
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class RobustSsduLesson(Cascades):
    """The samples of a scan are masked again and made noisier; all of them judge, as they were measured.

    With ỹ = y + ñ on Ω∩Λ, ñ ~ CN(0, α²σ₀²), and x̂ = f(A_{Ω∩Λ}*ỹ),

        ‖w M_{Ω∖Λ} (F S x̂ − y)‖² + ‖(1+α²)/α² M_{Ω∩Λ} (F S x̂ − y)‖² → min, over ‖y_Ω‖²,

    w as in Weighted SSDU, with p found in the same way: the share of the lines outside the calibration region that a
    scan sampled. Where samples were given the network comes to E[y | ỹ], which :func:`corrected` makes E[y₀ | ỹ].

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    kept
        p̃, the probability that a line outside the calibration region is in Λ.
    alpha
        α, the noise added over the noise there is.
    """

    kept: float = 0.5
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.kept < 1:
            raise InputError(f"lesson.kept: expected a probability between 0 and 1, got {self.kept}")
        if not 0.05 <= self.alpha <= 20:
            raise InputError(f"lesson.alpha: expected 0.05 to 20, got {self.alpha}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The weighted error on Ω relative to its energy, (slice,)."""
        second, readout, device = SecondMask(self.kept), batch.kspace.shape[-2], batch.mask.device
        given, judged = split(second.draw, batch.lines, readout, batch.generators)
        given, judged = given.to(device), judged.to(device)
        unit = batch.unit_noise(*batch.kspace.shape[1:])
        noisier = batch.kspace + self.alpha * batch.sigma[:, None, None, None] * unit
        theta = SenseOperator(batch.maps, given)
        prediction = network(theta, theta.adjoint(noisier))
        square = batch.sigma.new_tensor([second.weight(mask, readout) ** 2 for mask in batch.lines])
        error = square * misfit(prediction, batch.maps, judged, batch.kspace)
        error = error + (1 + self.alpha**-2) ** 2 * misfit(prediction, batch.maps, given, batch.kspace)
        return error / energy(batch.mask, batch.kspace)

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """One evaluation, corrected for the noise that was not added."""
        adjoint = operator.adjoint(kspace)
        return corrected(network(operator, adjoint), operator, adjoint, self.alpha)


def corrected(image: Tensor, operator: SenseOperator, adjoint: Tensor, alpha: float) -> Tensor:
    """From the mean of a noisy sample to that of the clean one, where samples were given; then the coils are combined.

    As y and ỹ = y + ñ are y₀ with noise of variances 1 : 1+α², E[y₀ | ỹ] = ((1+α²) E[y | ỹ] − ỹ)/α². With F S x̂ for the
    mean and, as published, y itself for ỹ, the sampled entries become ((1+α²) F S x̂ − y)/α² and the others remain
    F S x̂. Combined, S*F* of it, that is

        x̂ + (N x̂ − A*y)/α²,

    since Σ|S_c|² = 1 wherever x̂ is not 0.
    """
    return image + (operator.normal(image) - adjoint) / alpha**2


@dataclass(frozen=True)
class RobustSsdu(Learned):
    """One evaluation of the network, with all that was sampled and no more noise than that has, corrected.

    Parameters
    ----------
    model
        A file of weights trained with ``method: robust-ssdu``.
    """

    name = "robust-ssdu"
    summary = "Weighted SSDU that also learns to remove the noise, by adding some"
    needs = "undersampled scans, split"
    evaluations = 1
    lesson = RobustSsduLesson

    def reconstruct(self, problem: Problem) -> Tensor:
        """The network's image, corrected."""
        model = self.load(problem)
        assert isinstance(model.lesson, RobustSsduLesson)  # noqa: S101  `load` has seen to it
        image = model.network(problem.operator, problem.adjoint)
        return corrected(image, problem.operator, problem.adjoint, model.lesson.alpha)
