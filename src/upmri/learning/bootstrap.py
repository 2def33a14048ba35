"""How far from the truth an image is, by repeating on the image itself what was done to the truth.

The image x̂ is scanned again, in the computer: other lines of the same density, fresh noise, y' = A'x̂ + e'. What comes
of it, x̂', errs about x̂ much as x̂ errs about the truth (the parametric bootstrap), a little less, because x̂ is smoother
than the truth: a factor that follows the acceleration, fitted on lines that were held out, makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.physics.masks import calibration_region
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import complex_normal

# Slices that are worked on side by side.
_TOGETHER = 16
# Pixels to each side that a pixel's deviation is taken over.
_NEIGHBOURS = 2


def errors(
    reconstruct: Callable[[SenseOperator, Tensor, Tensor], Tensor],
    operator: SenseOperator,
    image: Tensor,
    sigma: Tensor,
    generator: torch.Generator,
    count: int,
) -> Tensor:
    """x̂' − x̂ for so many scans of the image, (count, slice, H, W).

    Parameters
    ----------
    reconstruct
        A', A'*y', σ₀ ↦ x̂', for any number of slices.
    operator, image
        A and x̂, (slice, H, W).
    sigma
        σ₀, (slice,).
    generator
        Of lines and noise, on the CPU.
    count
        How many.
    """
    found = []
    together = max(1, _TOGETHER // len(image))
    for first in range(0, count, together):
        size = min(together, count - first)
        lines = operator.mask.cpu()
        masks = torch.cat([moved(mask, image.shape[-2], generator)[None] for _ in range(size) for mask in lines])
        again = SenseOperator(operator.maps.repeat(size, 1, 1, 1), masks)
        truth = image.repeat(size, 1, 1)
        shape, deviation = tuple(again.maps.shape), sigma.repeat(size)
        noise = complex_normal(shape, generator).to(image) * deviation[:, None, None, None]
        adjoint = again.normal(truth) + again.adjoint(noise)
        found.append((reconstruct(again, adjoint, deviation) - truth).unflatten(0, (size, -1)))
    return torch.cat(found)


def moved(mask: Tensor, readout: int, generator: torch.Generator) -> Tensor:
    """Move every line, or point of a 2-D mask, a little: as many as before, and as dense where they were dense.

    What is fully sampled around DC stays. Each of the others, in random order, goes to a free place at most R away, R
    the acceleration along each axis of the mask, its own among them.

    Parameters
    ----------
    mask
        Bool (1 or H, W), on the CPU.
    readout
        H.
    generator
        Of the moves.
    """
    rows, columns = calibration_region(mask, readout)
    fixed = torch.zeros_like(mask)
    fixed[rows if len(mask) > 1 else slice(None), columns] = True
    axes = 1 if len(mask) == 1 else 2
    reach = max(1, round(float(mask.numel() / mask.sum()) ** (1 / axes)))
    result = mask.clone()  # what is fixed is in it
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
    """Deviation of the magnitude, (slice, H, W), over a few pixels around each: so few draws say little of one."""
    variance = (drawn.abs() - mean.abs()).square().mean(0)
    window = 2 * _NEIGHBOURS + 1
    return nnf.avg_pool2d(variance[:, None], window, 1, _NEIGHBOURS, count_include_pad=False)[:, 0].sqrt()
