"""Frames of a dynamic scan: which slices show the same place, and their average over time.

Coil maps do not change from frame to frame. If frames have different lines, their average has more of them, maybe all
around DC: F S_c of the mean image where every frame has every line, and close to it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from upmri.core.frame_places import PLACES, of_slices, places
from upmri.core.scan import Scan

__all__ = ["PLACES", "Average", "average_over_time", "of_slices", "places"]


class Average:
    """Sum of frames and how often each position was sampled, place by place."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[Tensor, Tensor]] = {}

    def add(self, place: int, kspace: Tensor, mask: Tensor) -> None:
        """Add a frame, (coil, H, W), with its mask, (1 or H, W)."""
        taken = mask.to(kspace.real.dtype)
        if place in self._sums:
            total, count = self._sums[place]
            self._sums[place] = (total + kspace, count + taken)  # masks may differ in their rows
        else:
            self._sums[place] = (kspace, taken)

    def __call__(self, place: int) -> tuple[Tensor, Tensor]:
        """Return the average, (coil, H, W), and which positions it has, bool (1 or H, W)."""
        total, count = self._sums[place]
        return total / count.clamp_min(1), count > 0


def average_over_time(scan: Scan, place_of: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the average of each place, (place, coil, H, W), and its mask, in the order of their numbers."""
    average = Average()
    for place, kspace, mask in zip(place_of, scan.kspace, scan.mask, strict=True):
        average.add(place, kspace, mask)
    kspaces, masks = zip(*(average(place) for place in range(max(place_of) + 1)), strict=True)
    return torch.stack(kspaces), torch.stack(masks)
