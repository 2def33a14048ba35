"""Splits of a scan's samples for self-supervised training (SSDU and its relatives), and the error on the loss samples.

Ω is the set of samples of a scan. All masks are bool and of the shape of the scan's, (1 or H, W), unless noted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from upmri.flow.objective import no_filter, projected_loss
from upmri.learning.regions import centre, outside_calibration
from upmri.physics.problem import Problem

Kind = Literal["columns", "points"]
Density = Literal["uniform", "gaussian"]

# Standard deviation of the Gaussian density, as a share of an axis.
_SPREAD = 0.25


@dataclass(frozen=True)
class Partition:
    """Ω = Θ ∪ Λ, disjoint (Yaman et al. 2020): |Λ| = ρ |Ω|, drawn without replacement; the centre stays in Θ.

    Parameters
    ----------
    loss_share
        ρ.
    kind
        ``columns``: whole lines, where the scan has lines, so that Θ is a mask of lines, too. ``points``: single points
        of k-space, as published.
    density
        Density of Λ: ``uniform``, or ``gaussian`` around DC with a standard deviation of a quarter of each axis.
    """

    loss_share: float = 0.4
    kind: Kind = "columns"
    density: Density = "uniform"

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Θ and Λ; of the shape (H, W) for points, whatever the mask's."""
        if self.kind == "points":
            mask = mask.expand(readout, -1)
        free = (mask & ~centre(mask)).flatten().nonzero().flatten()
        likely = torch.ones(mask.shape)
        if self.density == "gaussian":
            for axis, length in enumerate(mask.shape):
                if length > 1:
                    at = (torch.arange(length) - length // 2) / (_SPREAD * length)
                    likely *= torch.exp(-at.square() / 2).reshape(-1, 1) if axis == 0 else torch.exp(-at.square() / 2)
        count = min(len(free), max(1, round(self.loss_share * int(mask.sum()))))
        loss = torch.zeros_like(mask, memory_format=torch.contiguous_format)
        if count:
            picked = torch.multinomial(likely.flatten()[free], count, generator=generator)
            loss.view(-1)[free[picked]] = True
        return mask & ~loss, loss


@dataclass(frozen=True)
class SecondMask:
    """Λ of the same family as Ω: every line outside the calibration region with probability p̃, all within it.

    Ω ∩ Λ is the input and Ω∖Λ enters the loss. With p the probability that a scan sampled a line, a line that is not
    input is in Ω∖Λ with probability p (1−p̃)/(1−p p̃), so that errors weighted by (Millard and Chiew 2023)

        w = √((1−p p̃)/(p (1−p̃)))

    have the error on all lines that are not input, sampled or not, as their expectation.

    Parameters
    ----------
    kept
        p̃.
    """

    kept: float = 0.5

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Ω∩Λ and Ω∖Λ; the latter may be empty."""
        aside = torch.rand(mask.shape, generator=generator) >= self.kept
        loss = mask & outside_calibration(mask, readout) & aside
        return mask & ~loss, loss

    def weight(self, mask: Tensor, readout: int) -> float:
        """Return w, with p the share of the lines outside the calibration region that this mask sampled.

        It is one number, for masks of uniform density there. (A line beside the calibration region is never sampled, or
        it would belong to it. It is counted in p all the same, so that the sampled lines stand for it, too.)
        """
        outer = outside_calibration(mask, readout)
        # Where nothing outside was sampled, there is no loss to weight: any number serves.
        p = max(1, int((mask & outer).sum())) / max(1, int(outer.sum()))
        return float(((1 - p * self.kept) / (p * (1 - self.kept))) ** 0.5)

    def squared_weights(self, problem: Problem) -> Tensor:
        """Return w² of every slice, (slice,)."""
        readout = problem.operator.shape[-2]
        return problem.sigma.new_tensor([self.weight(mask, readout) ** 2 for mask in problem.lines])


def split(
    draw: Callable[[Tensor, int, torch.Generator], tuple[Tensor, Tensor]], problem: Problem
) -> tuple[Problem, Problem]:
    """Draw the samples that are input and those of the loss, for every slice with its own generator.

    Returns
    -------
    tuple of Problem
        The problem restricted to the input samples, and to the samples of the loss.
    """
    readout = problem.operator.shape[-2]
    parts = [draw(mask, readout, generator) for mask, generator in zip(problem.lines, problem.generators, strict=True)]
    inputs, loss = (torch.stack(part) for part in zip(*parts, strict=True))
    return problem.restrict(inputs), problem.restrict(loss)


def misfit(image: Tensor, part: Problem) -> Tensor:
    """‖A x − y‖² of each slice, (slice,), over all coils; gradients flow to the image alone."""
    return projected_loss(image, part.operator, part.adjoint, no_filter) + energy(part)


def energy(part: Problem) -> Tensor:
    """‖y‖² of the sampled entries of each slice, (slice,)."""
    mask = part.operator.mask
    sampled = part.kspace if mask is None else part.kspace * mask[:, None]
    return sampled.abs().square().flatten(1).sum(1)
