"""Error of an image by the parametric bootstrap: simulate a measurement of the image and reconstruct it.

The image x̂ is measured in simulation, with other lines of the same density and new noise, y' = A'x̂ + e'. The error
x̂' − x̂ of its reconstruction is about as large as the error of x̂ itself. It is a little smaller, because x̂ is smoother
than the true image. A factor fitted on held-out lines (:mod:`upmri.learning.spread`) corrects for this.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.learning.held_out import Reconstruct
from upmri.learning.regions import calibration
from upmri.physics.problem import Problem
from upmri.physics.simulate import complex_normal

# Number of slices in one call of the reconstruction.
_TOGETHER = 16
# Pixels on each side over which the standard deviation of a pixel is averaged.
_NEIGHBOURS = 2


def bootstrap_errors(
    reconstruct: Reconstruct, problem: Problem, image: Tensor, generators: Sequence[torch.Generator], count: int
) -> Tensor:
    """x̂' − x̂ for ``count`` simulated measurements of the image, (count, slice, H, W).

    Parameters
    ----------
    reconstruct
        Reconstruction x̂ of a problem with any number of slices.
    problem, image
        Problem with operator A and noise level σ₀, and its reconstruction x̂, (slice, H, W).
    generators
        Random generators for lines and noise, one per slice, on the CPU.
    count
        Number of measurements.
    """
    found = []
    together = max(1, _TOGETHER // len(image))
    readout, data = image.shape[-2], problem.kspace.shape[1:]
    pairs = list(zip(problem.lines, generators, strict=True))
    # The order in which a generator is used must not depend on the number of slices.
    for first in range(0, count, _TOGETHER):
        size = min(_TOGETHER, count - first)
        masks = [torch.stack([move_lines(mask, readout, generator) for _ in range(size)]) for mask, generator in pairs]
        for chosen in torch.stack(masks, 1).split(together):
            repeats = len(chosen)
            unit = torch.stack([complex_normal(data, generator) for _ in chosen for _, generator in pairs]).to(image)
            again = problem.operator.take([*range(len(image))] * repeats).restrict(chosen.flatten(0, 1))
            truth, sigma = image.repeat(repeats, 1, 1), problem.sigma.repeat(repeats)
            adjoint = again.normal(truth) + again.H(sigma[:, None, None, None] * unit)
            measured = Problem.from_adjoint(again, adjoint, sigma, scaled=True)
            found.append((reconstruct(measured) - truth).unflatten(0, (repeats, -1)))
    return torch.cat(found)


def move_lines(mask: Tensor, readout: int, generator: torch.Generator) -> Tensor:
    """Move the lines (points) of a mask, bool (1 or H, W), at random; their number and density stay the same.

    The calibration region, for H = ``readout``, does not move. Each other line moves, in random order, to a free
    position at a distance of at most R, where R is the acceleration along each axis; it may stay where it is.
    """
    fixed = calibration(mask, readout)
    axes = 1 if len(mask) == 1 else 2
    reach = max(1, round(float(mask.numel() / mask.sum()) ** (1 / axes)))
    result = mask.clone()
    points = (mask & ~fixed).nonzero()
    for index in torch.randperm(len(points), generator=generator).tolist():
        y, x = points[index].tolist()
        result[y, x] = False
        top, left = max(0, y - reach), max(0, x - reach)
        free = (~result[top : y + reach + 1, left : x + reach + 1]).nonzero()
        choice = free[torch.randint(len(free), (1,), generator=generator)][0]
        result[top + int(choice[0]), left + int(choice[1])] = True
    return result


def deviation(drawn: Tensor, mean: Tensor) -> Tensor:
    """Standard deviation of the magnitude around |mean|, (slice, H, W), from draws (count, slice, H, W).

    The variance is averaged over 5×5 pixels, because there are few draws.
    """
    variance = (drawn.abs() - mean.abs()).square().mean(0)
    window = 2 * _NEIGHBOURS + 1
    return nnf.avg_pool2d(variance[:, None], window, 1, _NEIGHBOURS, count_include_pad=False)[:, 0].sqrt()
