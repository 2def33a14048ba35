"""Split the lines of a scan into input lines, lines known through the path, and loss lines.

The noise of different lines is independent, so the error on lines that were not input is unbiased. If x̂ is
reconstructed from the input lines and some others, the point x_t = (1−t) x̂ + t x₁ of the path contains information
about these other lines, hidden by the noise t x₁. All masks are bool (1 or H, W), one row for masks of whole lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least, shares
from upmri.core.errors import InputError
from upmri.learning.regions import calibration, centre, draw_per_slice
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class LineSplit:
    """Random split of the sampled lines; each share is drawn uniformly between two bounds, for each scan.

    Parameters
    ----------
    loss
        Share of the loss lines, Λ.
    path
        Share of the remaining lines that are known only through the path, Ξ; the others are the input lines, Θ.
    calibration
        Probability to remove a calibration line from the input, relative to that of other lines. It is small because a
        new scan has all calibration lines, and not 0 because low frequencies must enter the loss.
    """

    loss: tuple[float, float] = (0.05, 0.6)
    path: tuple[float, float] = (0.0, 0.5)
    calibration: float = 0.15

    def __post_init__(self) -> None:
        shares(self, "loss", "path")
        at_least(self, 0, "calibration")

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return Θ, Ξ and Λ, of the shape of the mask: disjoint, with the mask as their union."""
        middle = centre(mask)
        likely = torch.where(calibration(mask, readout), self.calibration, 1.0).masked_fill(middle, 0)
        loss_share, path_share = (
            low + (high - low) * torch.rand((), generator=generator) for low, high in (self.loss, self.path)
        )
        loss = mask & (torch.rand(mask.shape, generator=generator) < loss_share * likely)
        if not loss.any():
            outer = mask & (likely > 0)
            candidates = (outer if outer.any() else mask & ~middle).flatten().nonzero().flatten()
            if not len(candidates):
                raise InputError("expected sampled lines outside the centre, found none to compare with", field="mask")
            pick = candidates[torch.randint(len(candidates), (1,), generator=generator)]
            loss.view(-1)[pick] = True
        path = mask & ~loss & (torch.rand(mask.shape, generator=generator) < path_share * likely)
        return mask & ~loss & ~path, path, loss

    def draw_each(self, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
        """Return Θ, Ξ and Λ of every slice, (slice, 1 or H, W), drawn with the slices' own generators."""
        parts = zip(*draw_per_slice(self.draw, problem), strict=True)
        inputs, path, loss = (torch.stack(part).to(problem.device) for part in parts)
        return inputs, path, loss


def folds(mask: Tensor, readout: int, generator: torch.Generator, count: int) -> Tensor:
    """Divide the lines outside the calibration region into parts of equal size, at random: (count, 1 or H, W).

    If all lines are calibration lines, these are divided, without the centre.
    """
    outer = mask & ~calibration(mask, readout)
    outer = outer if outer.any() else mask & ~centre(mask)
    lines = outer.flatten().nonzero().flatten()
    chosen = torch.zeros(count, mask.numel(), dtype=torch.bool)
    chosen[torch.arange(len(lines)) % count, lines[torch.randperm(len(lines), generator=generator)]] = True
    return chosen.reshape(count, *mask.shape)


def spread_lines(problem: Problem, one_of: int, least: int) -> tuple[Tensor, list[int]]:
    """Choose one of every ``one_of`` lines outside the calibration region, spread over all distances from the centre.

    Lines in order of their distance are cut into runs of about ``one_of``, two at least, and one line of each is drawn.
    So the energy of the chosen lines varies less than that of lines drawn at random. Slices with less than ``least``
    lines outside the calibration region have none, nor have slices of zeros. Slices with the same mask have different
    lines.

    Returns
    -------
    tuple
        The chosen lines, (slice, 1 or H, W), on the CPU, and the numbers of the slices that have some.
    """
    chosen = torch.zeros_like(problem.lines, memory_format=torch.contiguous_format)
    usable, seeds = [], range(len(problem))
    readout, shown = problem.operator.shape[-2], problem.adjoint.flatten(1).any(1).tolist()
    for index, (mask, generator) in enumerate(zip(problem.lines, problem.with_seeds(seeds).generators, strict=True)):
        points = (mask & ~calibration(mask, readout)).nonzero()
        if len(points) < least or not shown[index]:
            continue
        middle = torch.tensor([length // 2 for length in mask.shape])
        distance = ((points - middle) / torch.tensor(mask.shape)).square()[:, int(len(mask) == 1) :].sum(1)
        ordered = points[distance.argsort(stable=True)]
        for run in ordered.tensor_split(max(2, round(len(points) / one_of))):
            row, column = run[torch.randint(len(run), (), generator=generator)]
            chosen[index, row, column] = True
        usable.append(index)
    return chosen, usable
