"""Bright focal spots of an image, such as lesions of multiple sclerosis in FLAIR, by an automatic rule.

The rule knows nothing of disease. It finds small bright things on an even background, for images that come without the
outlines of their lesions: most spots deep in white matter are lesions, a few are folds of the cortex, choroid plexus or
vessels. Lesions at the edge of a ventricle, over 20 or under about 4 pixels, or less than 25 % above their
surroundings are missed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from upmri.core.errors import InputError
from upmri.evaluation.lesion_measures import disc_and_ring
from upmri.evaluation.lesions import deep_inside

DIAMETERS = (4.0, 6.0, 8.0, 10.0, 14.0, 20.0)
# Least contrast, relative to the ring; largest deviation over the ring, relative to its mean; darkest ring, as a share
# of the image's 99.9th percentile.
_LEAST, _ROUGHEST, _DARKEST = 0.25, 0.14, 0.15
# Least part of the disc's contrast that every quarter of the ring has to show: a spot is bright on all sides of it, a
# line or an edge is not.
_SIDES = 0.6


class Spot(NamedTuple):
    """A bright spot: place and diameter in pixels, and its contrast, disc minus ring over ring."""

    row: int
    column: int
    diameter: float
    contrast: float


def focal_spots(magnitude: Tensor) -> list[Spot]:
    """Find bright spots on an even background, the one with the highest contrast first.

    For discs of 4, 6, 8, 10, 14 and 20 pixels and the ring around each (:func:`disc_and_ring`), a place is a spot where

    - mean(disc) − mean(ring) ≥ 0.25 mean(ring), the largest such contrast within 3 pixels and over all diameters;
    - the same with each quarter of the ring has at least 0.6 of it: no line, no edge;
    - the deviation over the ring is below 14 % of its mean, and the mean above 15 % of the 99.9th percentile;
    - it lies at least 9 % of the field of view inside the object's outline, along rows and columns.

    Of two spots that overlap only the one with the higher contrast is kept.

    Parameters
    ----------
    magnitude
        Fully sampled image, (H, W).
    """
    if magnitude.ndim != 2:
        raise InputError(f"expected (H, W), got {tuple(magnitude.shape)}", field="magnitude")
    # Single precision: convolutions of doubles have no fast kernel, and need much memory.
    image = (magnitude.double() / torch.quantile(magnitude.double().flatten(), 0.999)).float()
    contrasts = torch.stack([_contrast(image, diameter) for diameter in DIAMETERS])
    best, which = contrasts.max(0)
    peaks = (best == max_pool2d(best[None], 7, stride=1, padding=3)[0]) & (best >= _LEAST) & deep_inside(image)
    found = [
        Spot(row, column, DIAMETERS[int(which[row, column])], best[row, column].item())
        for row, column in peaks.nonzero().tolist()
    ]
    kept: list[Spot] = []
    for spot in sorted(found, key=lambda spot: -spot.contrast):
        if all(
            math.hypot(spot.row - at.row, spot.column - at.column) > (spot.diameter + at.diameter) / 2 for at in kept
        ):
            kept.append(spot)
    return kept


def _contrast(image: Tensor, diameter: float) -> Tensor:
    """Contrast at every pixel, 0 where the surroundings are not those of a focal spot, (H, W)."""
    size = 2 * math.ceil(diameter / 2 + 5) + 1
    middle = size // 2
    disc, ring = disc_and_ring((size, size), middle, middle, diameter)
    y, x = (torch.arange(size) - middle for _ in range(2))
    quarters = [
        ring & side
        for side in (y[:, None] > x.abs(), y[:, None] < -x.abs(), x > y.abs()[:, None], x < -y.abs()[:, None])
    ]
    kernels = torch.stack([mask.float() / mask.sum() for mask in (disc, ring, *quarters)])
    spot, around, *sides = conv2d(image[None, None], kernels[:, None], padding=middle)[0]
    square = conv2d(image[None, None] ** 2, kernels[1:2, None], padding=middle)[0, 0]
    deviation = (square - around**2).clamp_min(0).sqrt()
    contrast = spot - around
    even = (deviation < _ROUGHEST * around) & (around > _DARKEST)
    all_sides = (spot - torch.stack(sides).amax(0)) >= _SIDES * contrast
    return torch.where(even & all_sides, contrast / around.clamp_min(1e-12), 0.0)
