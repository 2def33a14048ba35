"""Split the lines of a scan into input lines, lines known through the path, and loss lines.

The noise of different lines is independent, so the error on lines that were not input is unbiased. With x̂ a
reconstruction from more lines than the input, a point of the path x_t = (1−t) x̂ + t x₁ carries information about the
lines in between, through noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.regions import calibration, centre
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class LineSplit:
    """Random split of a scan's lines. All shares are of the sampled lines, drawn between two bounds for each scan.

    Parameters
    ----------
    loss
        Share of the loss lines, Λ.
    path
        Share of the remaining lines that is known through the path alone, Ξ; the others are the input lines, Θ.
    calibration
        Probability to remove a calibration line from the input, relative to that of other lines. A new scan has all of
        them, but with 0 the low frequencies of the network's image would never enter the loss.
    """

    loss: tuple[float, float] = (0.05, 0.6)
    path: tuple[float, float] = (0.0, 0.5)
    calibration: float = 0.15

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return Θ, Ξ and Λ, bool, of the shape of the mask (1 or H, W): disjoint, together the mask."""
        middle = centre(mask)
        likely = torch.where(calibration(mask, readout), self.calibration, 1.0).masked_fill(middle, 0)
        loss_share, path_share = (
            low + (high - low) * torch.rand((), generator=generator) for low, high in (self.loss, self.path)
        )
        loss = mask & (torch.rand(mask.shape, generator=generator) < loss_share * likely)
        if not loss.any():
            outer = mask & (likely > 0)
            candidates = (outer if outer.any() else mask & ~middle).flatten().nonzero().flatten()
            pick = candidates[torch.randint(len(candidates), (1,), generator=generator)]
            loss.view(-1)[pick] = True
        path = mask & ~loss & (torch.rand(mask.shape, generator=generator) < path_share * likely)
        return mask & ~loss & ~path, path, loss

    def draw_each(self, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
        """Return Θ, Ξ and Λ of every slice, (slice, 1 or H, W), by the slices' own generators."""
        readout = problem.operator.shape[-2]
        parts = [
            self.draw(mask, readout, generator)
            for mask, generator in zip(problem.lines, problem.generators, strict=True)
        ]
        inputs, path, loss = (torch.stack(part).to(problem.device) for part in zip(*parts, strict=True))
        return inputs, path, loss


def folds(mask: Tensor, readout: int, count: int, generator: torch.Generator) -> Tensor:
    """Distribute the lines outside the calibration region among folds, evenly and at random: bool (count, 1 or H, W).

    Where there are no others the calibration lines are distributed, without the centre.
    """
    outer = mask & ~calibration(mask, readout)
    outer = outer if outer.any() else mask & ~centre(mask)
    lines = outer.flatten().nonzero().flatten()
    chosen = torch.zeros(count, mask.numel(), dtype=torch.bool)
    chosen[torch.arange(len(lines)) % count, lines[torch.randperm(len(lines), generator=generator)]] = True
    return chosen.reshape(count, *mask.shape)
