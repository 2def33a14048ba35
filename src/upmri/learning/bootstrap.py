"""Errors that an image may have, by the parametric bootstrap: simulate a measurement of an image, and reconstruct it.

1. The image x̂ is measured in simulation, with other lines of the same density and new noise, y' = A'x̂ + e'. The error
   ε = x̂' − x̂ of its reconstruction is about as large as the error of x̂ itself, a little smaller, because x̂ is smoother
   than the true image.
2. So d = x̂ ± κ ε is about as rough as the true image. It is measured with the lines of the scan, y'' = A d + e'', and
   the error η of its reconstruction is an error that x̂ may have: large where these lines leave gaps.

A gain that depends on |k|, fitted on held-out lines (:mod:`upmri.learning.spread`), corrects what is left.
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
# κ: with it, draws of validation people had about the energy of the error of x̂ (simulated scans).
_ROUGHNESS = 1.3
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
    readout = image.shape[-2]
    pairs = list(zip(problem.lines, generators, strict=True))
    # The order in which a generator is used must not depend on the number of slices.
    for first in range(0, count, _TOGETHER):
        size = min(_TOGETHER, count - first)
        masks = [torch.stack([move_lines(mask, readout, generator) for _ in range(size)]) for mask, generator in pairs]
        found.append(_errors(reconstruct, problem, image.expand(size, -1, -1, -1), generators, torch.stack(masks, 1)))
    return torch.cat(found)


def draw_errors(
    reconstruct: Reconstruct, problem: Problem, image: Tensor, generators: Sequence[torch.Generator], count: int
) -> Tensor:
    """±η of both steps, (count, slice, H, W): errors of rough images that were measured with the lines of the scan.

    The sign is random, so that the mean of images x̂ ± η is x̂. Two reconstructions for each.

    Parameters
    ----------
    reconstruct, problem, image, generators, count
        As in :func:`bootstrap_errors`.
    """
    first = bootstrap_errors(reconstruct, problem, image, generators, count)
    rough = image + _ROUGHNESS * _signs(first, generators) * first
    return _signs(first, generators) * _errors(reconstruct, problem, rough, generators)


def _errors(
    reconstruct: Reconstruct,
    problem: Problem,
    images: Tensor,
    generators: Sequence[torch.Generator],
    masks: Tensor | None = None,
) -> Tensor:
    """Errors of the reconstruction of images (count, slice, H, W) from simulated measurements, of the same shape.

    The lines are those of ``masks``, (count, slice, 1 or H, W), or of the problem.
    """
    found = []
    slices = images.shape[1]
    together, data = max(1, _TOGETHER // slices), problem.kspace.shape[1:]
    for at in range(0, len(images), together):
        truth = images[at : at + together].flatten(0, 1)
        repeats = len(truth) // slices
        unit = torch.stack([complex_normal(data, generator) for _ in range(repeats) for generator in generators])
        again = problem.operator.take([*range(slices)] * repeats)
        if masks is not None:
            again = again.restrict(masks[at : at + together].flatten(0, 1))
        sigma = problem.sigma.repeat(repeats)
        adjoint = again.normal(truth) + again.H(sigma[:, None, None, None] * unit.to(truth))
        measured = Problem.from_adjoint(again, adjoint, sigma, scaled=True)
        found.append((reconstruct(measured) - truth).unflatten(0, (repeats, -1)))
    return torch.cat(found)


def _signs(like: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """±1 for each image, (count, slice, 1, 1)."""
    drawn = [torch.randint(2, (len(like),), generator=generator) for generator in generators]
    return (2 * torch.stack(drawn, 1) - 1)[..., None, None].to(like.real)


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
