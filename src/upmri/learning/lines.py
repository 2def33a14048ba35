"""Divide the lines of a scan: those the network is given, and those that judge what it makes of them.

The noise of different lines is independent, so an error on lines that were not given is unbiased as it is. With x̂ a
reconstruction that saw more lines than the network is given, a point of the path x_t = (1−t) x̂ + t x₁ tells it, through
noise, of the lines in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.physics.masks import calibration_region

# Lines (and, of 2-D masks, rows) at the centre that are always given: without them there is no image to speak of.
_CENTRE = 4


@dataclass(frozen=True)
class SplitLaw:
    """How much of a scan judges. All shares are of the sampled lines, drawn evenly between two bounds for each scan.

    Parameters
    ----------
    judged
        Share that judges, Λ.
    told
        Share of the rest that is told through the path alone, Ξ; what remains is given, Θ.
    calibration
        How likely a calibration line is to be taken away, compared with another: a new scan has them all, but
        with 0 nothing would hold the network's low frequencies.
    """

    judged: tuple[float, float] = (0.05, 0.6)
    told: tuple[float, float] = (0.0, 0.5)
    calibration: float = 0.15

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return Θ, Ξ and Λ, bool, of the shape of the mask (1 or H, W): disjoint, together the mask."""
        middle = _centre(mask)
        likely = torch.where(_calibration(mask, readout), self.calibration, 1.0).masked_fill(middle, 0)
        judged_share, told_share = (
            low + (high - low) * torch.rand((), generator=generator) for low, high in (self.judged, self.told)
        )
        judged = mask & (torch.rand(mask.shape, generator=generator) < judged_share * likely)
        if not judged.any():
            outer = mask & (likely > 0)
            candidates = (outer if outer.any() else mask & ~middle).flatten().nonzero().flatten()
            pick = candidates[torch.randint(len(candidates), (1,), generator=generator)]
            judged.view(-1)[pick] = True
        told = mask & ~judged & (torch.rand(mask.shape, generator=generator) < told_share * likely)
        return mask & ~judged & ~told, told, judged


def folds(mask: Tensor, readout: int, count: int, generator: torch.Generator) -> Tensor:
    """Deal the lines but those of calibration among folds, evenly and at random: bool, (count, 1 or H, W).

    Where there are no others those of calibration are dealt, without the centre.
    """
    outer = mask & ~_calibration(mask, readout)
    outer = outer if outer.any() else mask & ~_centre(mask)
    lines = outer.flatten().nonzero().flatten()
    dealt = torch.zeros(count, mask.numel(), dtype=torch.bool)
    dealt[torch.arange(len(lines)) % count, lines[torch.randperm(len(lines), generator=generator)]] = True
    return dealt.reshape(count, *mask.shape)


def _calibration(mask: Tensor, readout: int) -> Tensor:
    rows, columns = calibration_region(mask, readout)
    inside = torch.zeros_like(mask)
    inside[rows if len(mask) > 1 else slice(None), columns] = True
    return inside


def _centre(mask: Tensor) -> Tensor:
    inside = torch.zeros_like(mask)
    inside[tuple(_middle(length) for length in mask.shape)] = True
    return inside


def _middle(length: int) -> slice:
    if length == 1:
        return slice(None)
    return slice(length // 2 - _CENTRE // 2, length // 2 + _CENTRE // 2)
