"""Split of a scan's samples into input and loss samples (SSDU and related methods), and the error on the latter.

Ω is the set of samples of a scan. All masks are bool and of the shape of the scan's, (1 or H, W), unless noted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from upmri.flow.objective import no_filter, projected_loss
from upmri.learning.regions import centre, draw_per_slice, outside_calibration
from upmri.physics.problem import Problem

Kind = Literal["columns", "points"]
Density = Literal["uniform", "gaussian"]

# Standard deviation of the Gaussian density, as a share of an axis.
_SPREAD = 0.25


@dataclass(frozen=True)
class Partition:
    """Input samples Θ and loss samples Λ of SSDU (Yaman et al. 2020): Ω = Θ ∪ Λ, disjoint, with |Λ| = ρ |Ω|.

    Λ is drawn without replacement. The centre always belongs to Θ.

    Parameters
    ----------
    loss_share
        Share ρ of the loss samples.
    kind
        ``columns``: whole lines for scans with masks of lines, so that Θ is a mask of lines, too. ``points``: single
        points of k-space, as published.
    density
        Density of Λ: ``uniform``, or ``gaussian`` around DC with a standard deviation of a quarter of each axis.
    """

    loss_share: float = 0.4
    kind: Kind = "columns"
    density: Density = "uniform"

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Θ and Λ: of the shape of the mask for columns, (H, W) for points."""
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
    """A second random mask Λ, drawn like Ω: all calibration lines, and every other line with probability p̃.

    Ω ∩ Λ is the input and Ω∖Λ enters the loss. If a scan samples a line with probability p, a line that is not input is
    in Ω∖Λ with probability p (1−p̃)/(1−p p̃). Errors weighted by (Millard and Chiew 2023)

        w = √((1−p p̃)/(p (1−p̃)))

    therefore have the error on all lines that are not input, sampled or not, as their expectation.

    Parameters
    ----------
    kept
        Probability p̃ that Λ contains a line outside the calibration region.
    """

    kept: float = 0.5

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Ω∩Λ and Ω∖Λ; the latter may be empty."""
        removed = torch.rand(mask.shape, generator=generator) >= self.kept
        loss = mask & outside_calibration(mask, readout) & removed
        return mask & ~loss, loss

    def weight(self, mask: Tensor, readout: int) -> float:
        """Return w, with p the share of the lines outside the calibration region that this mask sampled.

        It is one number, for masks with a uniform density there. The lines next to the calibration region are never
        sampled, or they would belong to it. They count in p, so that the weighted error includes them.
        """
        outer = outside_calibration(mask, readout)
        # If nothing outside was sampled, there is no loss, and the weight has no effect.
        p = max(1, int((mask & outer).sum())) / max(1, int(outer.sum()))
        return float(((1 - p * self.kept) / (p * (1 - self.kept))) ** 0.5)

    def squared_weights(self, problem: Problem) -> Tensor:
        """Return w² of every slice, (slice,)."""
        readout = problem.operator.shape[-2]
        return problem.sigma.new_tensor([self.weight(mask, readout) ** 2 for mask in problem.lines])


def split(
    draw: Callable[[Tensor, int, torch.Generator], tuple[Tensor, Tensor]], problem: Problem
) -> tuple[Problem, Problem]:
    """Return the problem of the input samples and that of the loss samples, drawn with the slices' own generators.

    ``draw`` maps a mask, the number of rows H and a random generator to the two masks.
    """
    inputs, loss = (torch.stack(part) for part in zip(*draw_per_slice(draw, problem), strict=True))
    return problem.restrict(inputs), problem.restrict(loss)


def misfit(image: Tensor, part: Problem) -> Tensor:
    """‖A x − y‖² of each slice, (slice,), summed over samples and coils; gradients flow to the image only."""
    return projected_loss(image, part.operator, part.adjoint, no_filter) + energy(part)


def energy(part: Problem) -> Tensor:
    """‖y‖² of the sampled entries of each slice, (slice,)."""
    return part.samples.abs().square().flatten(1).sum(1)
