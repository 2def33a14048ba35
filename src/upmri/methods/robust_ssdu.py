"""Robust SSDU (Millard and Chiew 2024): Weighted SSDU that also learns to denoise, from noisy scans alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from upmri.core.checks import in_range
from upmri.learning.partition import SecondMask, energy, misfit, split
from upmri.methods.backbones import UNROLLED
from upmri.methods.weighted_ssdu import WeightedSsduObjective
from upmri.networks.denoising_varnet import DenoisingVarNet
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class RobustSsduObjective(WeightedSsduObjective):
    """The samples of a scan are masked again and noise is added; all of them, as measured, form the loss.

    With ỹ = y + ñ on Ω∩Λ, ñ ~ CN(0, α²σ₀²), and x̂ = f(A_{Ω∩Λ}*ỹ),

        ‖w M_{Ω∖Λ} (F S x̂ − y)‖² + ‖(1+α²)/α² M_{Ω∩Λ} (F S x̂ − y)‖² → min, over ‖y_Ω‖²,

    w as in Weighted SSDU, with p found in the same way: the share of the lines outside the calibration region that a
    scan sampled. On input samples the network approaches E[y | ỹ], from which :meth:`correct` computes E[y₀ | ỹ].

    Parameters
    ----------
    backbone
        Network: ``varnet``; ``denoising``, the published Denoising VarNet, with one U-Net for sampled entries and one
        for the others in each cascade; or ``unrolled``, that of ``upmri``, which gets the noise level √(1+α²) σ₀ of ỹ
        in training.
    cascades, width, kept
        See :class:`~upmri.methods.weighted_ssdu.WeightedSsduObjective`.
    alpha
        α, added noise relative to the noise of the data.
    """

    backbones: ClassVar[tuple[str, ...]] = ("varnet", "denoising", UNROLLED)

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, alpha=(0.05, 20))

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        if self.backbone == "denoising":
            return DenoisingVarNet(cascades=self.cascades, width=self.width)
        return super().network()

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Weighted error on Ω relative to its energy, (slice,)."""
        second = SecondMask(self.kept)
        inputs, loss = split(second.draw, problem)
        unit = problem.unit_noise(*problem.kspace.shape[1:])
        noisier = problem.kspace + self.alpha * problem.sigma[:, None, None, None] * unit
        predict = self.predictor(network, problem, noisier=math.sqrt(1 + self.alpha**2))
        prediction = predict(inputs.operator, inputs.operator.H(noisier))
        error = second.squared_weights(problem) * misfit(prediction, loss)
        error = error + (1 + self.alpha**-2) ** 2 * misfit(prediction, inputs)
        return error / energy(problem)

    def correct(self, image: Tensor, problem: Problem) -> Tensor:
        """Return the image with the noise removed from its sampled entries.

        As y and ỹ = y + ñ are y₀ with noise of variances 1 : 1+α², E[y₀ | ỹ] = ((1+α²) E[y | ỹ] − ỹ)/α². With F S x̂
        for the mean and, as published, y itself for ỹ, the sampled entries become ((1+α²) F S x̂ − y)/α² and the others
        remain F S x̂. Combined, S*F* of it, that is

            x̂ + (N x̂ − A*y)/α²,

        since Σ|S_c|² = 1 wherever x̂ is not 0.
        """
        return image + (problem.operator.normal(image) - problem.adjoint) / self.alpha**2
