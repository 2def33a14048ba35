"""ENSURE (Aggarwal, Pramanik, John and Jacob 2023): SURE, weighted so that over many masks all of k-space is judged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.learning.partition import energy, outside
from upmri.learning.sure import Part, sure
from upmri.methods.learned import OneEvaluation
from upmri.methods.unrolls import Unrolls
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class EnsureLesson(Unrolls):
    """The estimated error of x̂ = f(A*y) on the samples, each over the probability p that a mask has it.

        [‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² Re⟨q, J q⟩] / ‖y‖² → min,    w = 1/p,  q = A* √w b,  b ~ CN(0, I).

    p is 1 in the calibration region of a scan's own mask, elsewhere the share of the lines that it sampled: as long as
    those are of even density, E[A* w A] over the masks is the identity on the support, with one coil or with many.
    Published is ‖W⁻¹ P (x̂ − A⁺y)‖² with the projection P = A⁺A and W² = E[P] instead. For one coil that is the same.
    For many W has no closed form, and A* w A stands for P W⁻² P: it has the same mean, but takes directions in which A
    is weak for as weak as they are, where P would count them, and their noise, in full.

    A⁺ is not needed, nor any damping of it: with u = argmin ‖√w (A u − y)‖², which for one coil is A⁺y, the normal
    equations A* w (A u − y) = 0 make

        ‖√w (A x̂ − y)‖² = ‖√w A (x̂ − u)‖² + ‖√w (A u − y)‖²,

    and the last does not depend on x̂. Published or here, it stands for the error of all of x̂ only as far as that error
    does not depend on the mask: what is judged are lines that were given, and an x̂ that is right on those and 0
    elsewhere is not found to be wrong.

    Parameters
    ----------
    unrolls, layers, width
        Of the network: K, and the layers and channels of its CNN.
    damping
        λ at the start.
    """

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The estimate relative to the energy of the samples, (slice,)."""
        operator, unit = SenseOperator(batch.maps, batch.mask), batch.unit_noise(*batch.kspace.shape[1:])
        parts = inverse_probability(batch.lines, batch.kspace.shape[-2], batch.sigma)
        error, _ = sure(network, operator, batch.kspace, batch.sigma, unit, parts)
        return error / energy(batch.mask, batch.kspace)


def inverse_probability(masks: Tensor, readout: int, like: Tensor) -> list[Part]:
    """The calibration region, with weight 1, and the samples outside it, with 1/p; on the device of ``like``.

    p is the share of the lines (or points) outside the region that a mask has. A line beside the region is never
    sampled, or it would be taken for a part of it, with weight 1; as it is counted, the sampled ones stand for it. In
    number that is right, but those beside the centre are stronger than others: the error on lines that were not given,
    of a head of 96×96 pixels at R = 3, came out 15 % too small.

    Parameters
    ----------
    masks
        Bool (slice, 1 or H, W), on the CPU.
    readout
        H.
    like
        Of the type and on the device that the weights, (slice,), shall be.
    """
    outer = torch.stack([outside(mask, readout) for mask in masks])
    # Where nothing outside was sampled, its weight is that of nothing: any number will do.
    sampled = (masks & outer).sum((1, 2)).clamp_min(1)
    weight = (outer.sum((1, 2)) / sampled).to(like)
    inner, rest = (masks & ~outer).to(like.device), (masks & outer).to(like.device)
    return [Part(inner, torch.ones_like(weight)), Part(rest, weight)]


@dataclass(frozen=True)
class Ensure(OneEvaluation):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ensure``.
    """

    name = "ensure"
    summary = "a MoDL learnt by SURE alone, weighted so that over many masks all of k-space is judged"
    needs = "undersampled scans, many masks"
    lesson = EnsureLesson
