"""Regions of k-space that are special when samples are split: the centre and the calibration region.

All masks are bool (1 or H, W), one row for masks of whole lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from upmri.physics.masks import calibration_region
from upmri.physics.problem import Problem

Drawn = TypeVar("Drawn")

# Number of lines (and, for 2-D masks, rows) at the centre that are always input, because no image is possible without.
_CENTRE = 4


def centre(mask: Tensor) -> Tensor:
    """Return the few lines, or points of a 2-D mask, around DC."""
    inside = torch.zeros_like(mask, memory_format=torch.contiguous_format)
    half = _CENTRE // 2
    inside[tuple(slice(None) if n == 1 else slice(n // 2 - half, n // 2 + half) for n in mask.shape)] = True
    return inside


def calibration(mask: Tensor, readout: int) -> Tensor:
    """Return the fully sampled region around DC, for H = ``readout``."""
    rows, columns = calibration_region(mask, readout)
    inside = torch.zeros_like(mask, memory_format=torch.contiguous_format)
    inside[rows if len(mask) > 1 else slice(None), columns] = True
    return inside


def outside_calibration(mask: Tensor, readout: int) -> Tensor:
    """Return all positions outside the calibration region; outside the centre if there are no other samples."""
    outer = ~calibration(mask, readout)
    return outer if (mask & outer).any() else ~centre(mask)


def draw_per_slice(draw: Callable[[Tensor, int, torch.Generator], Drawn], problem: Problem) -> list[Drawn]:
    """Call ``draw(mask, readout, generator)`` for every slice, with the mask and the generator of the slice."""
    readout = problem.operator.shape[-2]
    return [draw(mask, readout, generator) for mask, generator in zip(problem.lines, problem.generators, strict=True)]
