"""Coil images and coil maps of a few slices, at low resolution.

A coil image is the inverse transform of the centre of k-space of one coil, with zeros where nothing was sampled: it
shows coils without signal, with too much noise or with an artefact. Maps are those of the scan, or else estimated from
its calibration lines, as for a reconstruction. Coils vary slowly along slices: a page shows those of a few slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.evaluation.report.encode import Planes, angles, quantise
from upmri.physics.espirit import MIN_LINES, find_maps
from upmri.physics.fourier import ifft2c, middle
from upmri.physics.masks import calibration_lines

IN_FILE = "in the scan's file"
_SLICES = 3  # most slices
_SIDE = 128  # most pixels along a side
_MOST = 64  # most coils


@dataclass(frozen=True, eq=False)
class Coils:
    """Coils of some slices of a page, for each coil an array (slice, h, w).

    ``slices`` are their indices in the page; ``images`` the magnitudes of coil images; ``maps`` magnitude and phase of
    each map, empty where maps cannot be estimated; ``maps_from`` how the maps were found.
    """

    slices: list[int] = field(default_factory=list)
    images: list[Planes] = field(default_factory=list)
    maps: list[tuple[Planes, Planes]] = field(default_factory=list)
    maps_from: str = ""


def shown_slices(count: int) -> list[int]:
    """Return the slices whose coils are shown: the middle one, which is shown first, and those half way to the ends."""
    half = count // 2
    return sorted({half, half // 2, min(count - 1, half + (count - half) // 2)})[:_SLICES]


def view_coils(parts: Mapping[int, Scan]) -> Coils:
    """Return what a page shows of the coils of some slices, each a scan of one slice, by their index."""
    images, maps, ways = [], [], []
    for part in parts.values():
        kspace = part.kspace[:, :_MOST]
        images.append(ifft2c(middle(kspace.to(torch.complex128), _SIDE, _SIDE)).abs())
        found, way = _maps(part)
        maps.append(found)
        ways.append(way)
    magnitude = torch.cat(images).numpy()
    step = (float(magnitude.max()) or 1.0) / 255
    drawn = []
    if all(found is not None for found in maps):
        small = torch.cat([_shrunk(found[:, :_MOST]) for found in maps if found is not None]).numpy()
        drawn = [_drawn_map(one, float(np.abs(small).max()) or 1.0) for one in small.swapaxes(0, 1)]
    return Coils(
        slices=list(parts),
        images=[quantise(one, step=step, bits=8) for one in magnitude.swapaxes(0, 1)],
        maps=drawn,
        maps_from=", ".join(dict.fromkeys(ways)),
    )


def _maps(part: Scan) -> tuple[Tensor | None, str]:
    """Maps (1, coil, H, W) of a slice and how they were found; None without maps and calibration lines."""
    if part.maps is not None:
        return part.maps, str(part.meta.get("maps_from", IN_FILE))
    if calibration_lines(part.mask[0], part.matrix[0]) < MIN_LINES:
        return None, ""
    try:
        return find_maps(part.kspace, part.mask), "estimated from calibration lines"
    except InputError:  # nothing was measured in this slice
        return None, ""


def _drawn_map(one: NDArray[Any], largest: float) -> tuple[Planes, Planes]:
    size = np.abs(one)
    return quantise(size, step=largest / 255, bits=8), angles(one, size > 1e-3 * largest)


def _shrunk(maps: Tensor) -> Tensor:
    """Maps (1, coil, H, W) as averages over larger pixels."""
    size = (min(maps.shape[-2], _SIDE), min(maps.shape[-1], _SIDE))
    parts = interpolate(torch.view_as_real(maps).permute(0, 4, 1, 2, 3).flatten(0, 1), size, mode="area")
    return torch.complex(*parts.unflatten(0, (-1, 2)).unbind(1))
