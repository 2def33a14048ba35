"""Split the lines of a series of frames into input and loss lines, within and across frames."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least, in_range, shares
from upmri.core.errors import InputError
from upmri.learning.regions import calibration, centre
from upmri.physics.problem import Problem
from upmri.physics.time_average import by_series


@dataclass(frozen=True)
class SeriesSplit:
    """Random split of the sampled lines of each series into input lines Θ and loss lines Λ.

    Within a frame, a line is a loss line with a probability that is drawn for the series. Across frames, some frames
    lose all their lines, so that the network must find them from their neighbours. Each of the four central lines stays
    input in one frame that has it, because the image of all frames together is not possible without.

    Parameters
    ----------
    loss
        Bounds of the share of the loss lines.
    calibration
        Probability of a calibration line to be a loss line, relative to that of other lines; a new scan has all.
    whole
        Probability that all lines of a frame are loss lines.
    """

    loss: tuple[float, float] = (0.05, 0.5)
    calibration: float = 0.3
    whole: float = 0.03

    def __post_init__(self) -> None:
        shares(self, "loss")
        in_range(self, whole=(0, 1))
        at_least(self, 0, "calibration")

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Θ and Λ of one series, (frame, 1 or H, W): disjoint, with the mask as their union."""
        low, high = self.loss
        share = low + (high - low) * torch.rand((), generator=generator)
        calibrated = torch.stack([calibration(lines, readout) for lines in mask])
        likely = torch.where(calibrated, self.calibration, 1.0) * share
        whole = torch.rand(len(mask), 1, 1, generator=generator) < self.whole
        loss = mask & (whole | (torch.rand(mask.shape, generator=generator) < likely))
        # Of each central line, one frame that has it, at random.
        order = torch.where(mask, torch.rand(mask.shape, generator=generator), -1.0)
        kept = torch.zeros_like(mask, memory_format=torch.contiguous_format)
        kept.scatter_(0, order.argmax(0, keepdim=True), value=True)
        kept &= mask & centre(mask[0])
        loss &= ~kept
        if not loss.any():
            candidates = (mask & ~kept).flatten().nonzero().flatten()
            if not len(candidates):
                raise InputError("expected sampled lines outside the centre, found none to compare with", field="mask")
            loss.view(-1)[candidates[torch.randint(len(candidates), (1,), generator=generator)]] = True
        return mask & ~loss, loss

    def draw_each(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Return Θ and Λ of all series, (series · frame, 1 or H, W), by the generator of the first frame of each."""
        readout = problem.operator.shape[-2]
        series = by_series(problem.lines, problem.frames)
        generators = problem.generators[:: problem.frames]
        parts = [self.draw(mask, readout, generator) for mask, generator in zip(series, generators, strict=True)]
        inputs, loss = (torch.cat(part).to(problem.device) for part in zip(*parts, strict=True))
        return inputs, loss
