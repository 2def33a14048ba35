"""Regions of k-space that splits of a scan's samples treat differently: the centre and the calibration region.

All masks are bool (1 or H, W), one row for masks of whole lines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.physics.masks import calibration_region

# Lines (and, for 2-D masks, rows) at the centre that are always input: without them there is no image.
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
    """Return everything outside the calibration region; outside the centre if nothing else was sampled."""
    outer = ~calibration(mask, readout)
    return outer if (mask & outer).any() else ~centre(mask)
