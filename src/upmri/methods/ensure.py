"""ENSURE (Aggarwal, Pramanik, John and Jacob 2023): SURE, weighted so that many masks together cover all of k-space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.learning.partition import energy
from upmri.learning.regions import outside_calibration
from upmri.learning.sure import Part, sure
from upmri.methods.backbones import MoDLBackbone
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class EnsureObjective(MoDLBackbone):
    """The estimated error of x̂ = f(A*y) on the samples, each over the probability p that a mask has it.

        [‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² Re⟨q, J q⟩] / ‖y‖² → min,    w = 1/p,  q = A* √w b,  b ~ CN(0, I).

    p is 1 in the calibration region of a scan's own mask, elsewhere the share of the lines that it sampled: as long as
    those are of even density, E[A* w A] over the masks is the identity on the support, with one coil or with many.
    Published is ‖W⁻¹ P (x̂ − A⁺y)‖² with the projection P = A⁺A and W² = E[P] instead. For one coil that is the same.
    For many W has no closed form, and A* w A stands for P W⁻² P: it has the same mean, but takes directions in which A
    is weak with their small weight, where P would count them, and their noise, in full.

    Neither A⁺ nor a damping of it is needed: with u = argmin ‖√w (A u − y)‖², which for one coil is A⁺y, the normal
    equations A* w (A u − y) = 0 make

        ‖√w (A x̂ − y)‖² = ‖√w A (x̂ − u)‖² + ‖√w (A u − y)‖²,

    and the last does not depend on x̂. Published or here, it equals the error of all of x̂ only as far as that error
    does not depend on the mask: the loss is on lines that were input, and an x̂ that is right on those and 0 elsewhere
    has no loss.

    Parameters
    ----------
    backbone, unrolls, layers, width, damping
        Network, see :class:`~upmri.methods.backbones.MoDLBackbone`.
    """

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Estimated error relative to the energy of the samples, (slice,)."""
        unit = problem.unit_noise(*problem.kspace.shape[1:])
        parts = inverse_probability(problem.lines, problem.operator.shape[-2], problem.sigma)
        error, _ = sure(self.predictor(network, problem), problem, unit, parts)
        return error / energy(problem)


def inverse_probability(masks: Tensor, readout: int, like: Tensor) -> list[Part]:
    """The calibration region, with weight 1, and the samples outside it, with 1/p; on the device of ``like``.

    p is the share of the lines (or points) outside the region that a mask has. A line beside the region is never
    sampled, or it would belong to it, with weight 1; as it is counted in p, the sampled lines stand for it. Their
    number is right, but lines near the centre have more energy than others: the error on lines that were not input, of
    a head of 96×96 pixels at R = 3, was estimated 15 % too small.

    Parameters
    ----------
    masks
        Bool (slice, 1 or H, W), on the CPU.
    readout
        H.
    like
        Tensor whose type and device the weights, (slice,), get.
    """
    outer = torch.stack([outside_calibration(mask, readout) for mask in masks])
    # Where nothing outside was sampled, no sample has this weight: any number will do.
    sampled = (masks & outer).sum((1, 2)).clamp_min(1)
    weight = (outer.sum((1, 2)) / sampled).to(like)
    inner, rest = (masks & ~outer).to(like.device), (masks & outer).to(like.device)
    return [Part(inner, torch.ones_like(weight)), Part(rest, weight)]
