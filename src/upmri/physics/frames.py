"""Frames of a dynamic scan: which slices show the same place, and their average over time.

Coil maps do not change from frame to frame. If frames have different lines, their average has more of them, maybe all
around DC: F S_c of the mean image where every frame has every line, and close to it elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from upmri.core.scan import Scan

# Axes along which the place changes; along the others the same place is seen again.
PLACES = ("slice", "readout", "batch")


def places(meta: dict[str, Any], count: int) -> list[int] | None:
    """Return the place of each slice as a number, from ``meta["axes"]`` or ``meta["frames"]``.

    None where they do not say it, where they are not of ``count`` slices, and where no place is seen twice.
    """
    axes, frames = meta.get("axes"), meta.get("frames")
    if isinstance(frames, list) and len(frames) == count and all(isinstance(frame, dict) for frame in frames):
        found = [tuple(frame.get(name) for name in PLACES) for frame in frames]
    elif isinstance(axes, dict) and all(isinstance(n, int) and n > 0 for n in axes.values()):
        if math.prod(axes.values()) != count:
            return None
        grid = torch.cartesian_prod(*(torch.arange(n) for n in axes.values())).reshape(count, -1).tolist()
        kept = [i for i, name in enumerate(axes) if name in PLACES]
        found = [tuple(index[i] for i in kept) for index in grid]
    else:
        return None
    numbers = {place: number for number, place in enumerate(dict.fromkeys(found))}
    return [numbers[place] for place in found] if len(numbers) < count else None


def of_slices(meta: dict[str, Any], count: int, wanted: range) -> dict[str, Any]:
    """Return the ``meta`` of some slices of a scan of ``count``: which frames and places these are.

    ``meta["axes"]`` and ``meta["frames"]`` of a file are those of all its slices. Of a part, ``meta["frames"]`` lists
    the slices one by one. A scan that is not dynamic, or all of it, keeps its ``meta``.
    """
    if wanted == range(count) or places(meta, count) is None:
        return meta
    frames = meta.get("frames")
    if not isinstance(frames, list):
        axes = meta["axes"]
        grid = torch.cartesian_prod(*(torch.arange(n) for n in axes.values())).reshape(count, -1).tolist()
        frames = [dict(zip(axes, index, strict=True)) for index in grid]
    return {key: value for key, value in meta.items() if key != "axes"} | {"frames": [frames[i] for i in wanted]}


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
