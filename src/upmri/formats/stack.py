"""Where the slices of a scan lie in the patient, found from the positions and directions that readouts carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.geometry import AXES, FARTHEST, SKEW, Spacing
from upmri.formats.grid import Grid, Ints

_OFF = 0.05  # mm, the largest error of a position


@dataclass(frozen=True)
class SliceStack:
    """Positions and directions of the slices (or slabs) of a scan."""

    corners: NDArray[np.float64]  # (slice, 3), the centre of the first voxel of each
    directions: NDArray[np.float64]  # rows are those of readout, line, and partition or slice
    spacing: Spacing  # likewise

    def geometry(self, number: int, position: int | None) -> dict[str, list[float]]:
        """Return the geometry that begins with this slice, or in 3-D with this position along a slab's readout."""
        corner, directions = self.corners[number], self.directions
        if position is not None:
            corner, directions = corner + position * self.spacing[0] * directions[0], directions[[1, 2, 0]]
        return {"position": corner.tolist()} | dict(zip(AXES, directions.tolist(), strict=True))


def locate(grid: Grid, slices: Ints, positions: NDArray[Any], directions: NDArray[Any]) -> SliceStack | None:
    """Find the slices from the positions of all readouts; None if they are not known, or are no stack.

    Parameters
    ----------
    grid
        The grid of k-space; its centre, n // 2 of every axis, is the centre of the slice.
    slices
        Number of each readout's slice, in the order of their positions.
    positions
        Centre of each readout's slice in mm, (readout, 3).
    directions
        Directions along which the indices of the image grow, (readout, 3, 3): rows are readout, line and partition. For
        slices, the last is their normal, with either sign.
    """
    if grid.spacing is None or not (np.isfinite(positions).all() and np.isfinite(directions).all()):
        return None
    positions, directions = positions.astype(np.float64), directions.astype(np.float64)
    axes, spacing = directions[0].copy(), grid.spacing
    centres = positions[np.unique(slices, return_index=True)[1]]
    if (
        np.abs(directions - axes).max() > SKEW
        or np.abs(axes @ axes.T - np.eye(3)).max() > SKEW
        or np.abs(positions - centres[slices]).max() > _OFF
    ):
        return None
    if grid.partitions == 1 and len(centres) > 1:
        step = (centres[-1] - centres[0]) @ axes[2] / (len(centres) - 1)
        even = centres[0] + step * np.arange(len(centres))[:, None] * axes[2]
        if abs(step) <= _OFF or np.abs(centres - even).max() > _OFF:
            return None
        axes[2] *= np.sign(step)
        spacing = (spacing[0], spacing[1], abs(float(step)))
    middle = np.array([grid.readout // 2, grid.lines // 2, grid.partitions // 2])
    with np.errstate(over="ignore", invalid="ignore"):
        corners = centres - (middle * spacing) @ axes
    return SliceStack(corners, axes, spacing) if np.abs(corners).max() <= FARTHEST / 2 else None


def against(directions: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Reverse the directions of the axes that are encoded by gradients: all but the normal of slices."""
    encoded = 3 if grid.partitions > 1 else 2
    return np.concatenate([-directions[:, :encoded], directions[:, encoded:]], 1)
