"""Where the voxels of an image lie in the patient, for the formats that can say so.

It is what the scan says in ``meta["geometry"]``, a dictionary of four lists of three
numbers each, in DICOM's coordinates (x to the left, y to the back, z to the head):

``position``
    Centre of voxel (0, 0, 0) of this very image, its first slice, in mm.
``readout``, ``phase``, ``slice``
    Unit vectors, perpendicular to each other, along which the index of that axis grows; voxel (i, j, k) is centred at
    position + i·spacing[0]·readout + j·spacing[1]·phase + k·spacing[2]·slice. They may be left-handed.

A scan has it only if its slices are a stack in space: evenly apart, one above the other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.errors import InputError
from upmri.fields import Settings
from upmri.formats.grid import Grid, Ints
from upmri.scan import Reconstruction

Spacing = tuple[float, float, float]

_AXES = ("readout", "phase", "slice")
_AXIAL = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # rows are the directions of _AXES
_FARTHEST = 1e6  # mm
_SKEW = 1e-3
_OFF = 0.05  # mm that a slice may lie beside its place


def affine(rec: Reconstruction) -> NDArray[np.float64] | None:
    """Return the 4×4 matrix from (readout, phase, slice) indices to mm in DICOM's coordinates, None if not known."""
    given = rec.meta.get("geometry")
    if given is None:
        return None
    names = ("position", *_AXES)
    if not isinstance(given, dict) or not all(_is_vector(given.get(name)) for name in names):
        raise InputError(
            f'meta["geometry"]: expected {", ".join(names)}, each a list of three numbers (at most {_FARTHEST:g})'
        )
    directions = np.array([given[name] for name in _AXES], float)
    if np.abs(directions @ directions.T - np.eye(3)).max() > _SKEW:
        raise InputError('meta["geometry"]: expected unit vectors perpendicular to each other as readout, phase, slice')
    u, _, v = np.linalg.svd(directions)  # the nearest that are so exactly
    return _matrix(u @ v, np.array(given["position"], float), rec)


def axial(rec: Reconstruction) -> NDArray[np.float64]:
    """Return the matrix to assume where none is known: axial from the origin on, rows to the left."""
    return _matrix(_AXIAL, np.zeros(3), rec)


def cut(spacing: Spacing | None, meta: Settings, start: int, apart: int) -> Settings:
    """Return ``spacing`` and ``meta`` of some slices only: number ``start``, and then every one ``apart`` further on.

    With ``apart`` 0 they are no stack in space, and have no geometry. Where there is none, slices are taken for a stack
    unless frames are named.
    """
    place, axes = meta.get("geometry"), meta.get("axes")
    if place is not None and (apart == 0 or (spacing is None and (start > 0 or apart > 1))):
        meta = {key: value for key, value in meta.items() if key != "geometry"}
    elif place is not None and spacing is not None and start > 0:
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):  # what makes no sense is told by affine
            along = zip(place["position"], place["slice"], strict=True)
            meta = meta | {"geometry": place | {"position": [x + start * spacing[2] * step for x, step in along]}}
    frames = "frames" in meta or (isinstance(axes, dict) and not axes.keys() <= {"slice", "readout"})
    if spacing is not None and apart > 1 and (place is not None or not frames):
        spacing = (spacing[0], spacing[1], spacing[2] * apart)
    return {"spacing": spacing, "meta": meta}


@dataclass(frozen=True)
class Slices:
    """Where the slices (or slabs) of a scan lie."""

    corners: NDArray[np.float64]  # (slice, 3), the centre of the first voxel of each
    directions: NDArray[np.float64]  # rows are those of readout, line, and partition or slice
    spacing: Spacing  # likewise

    def geometry(self, number: int, position: int | None) -> dict[str, list[float]]:
        """Return that of a stack that begins with this slice, or in 3-D with this position of a slab's readout."""
        corner, directions = self.corners[number], self.directions
        if position is not None:
            corner, directions = corner + position * self.spacing[0] * directions[0], directions[[1, 2, 0]]
        return {"position": corner.tolist()} | dict(zip(_AXES, directions.tolist(), strict=True))


def find(grid: Grid, slices: Ints, positions: NDArray[Any], directions: NDArray[Any]) -> Slices | None:
    """Find the slices from what every readout says; None if that is nothing, or no stack.

    Parameters
    ----------
    grid
        Its centre, n // 2 of every axis, is the centre of the slice.
    slices
        The number of each readout's slice, in the order in which they lie.
    positions
        The centre of the slice in mm, (readout, 3).
    directions
        Along which the indices of the image grow, (readout, 3, 3): rows are those of readout, line and partition. For
        slices, the last is that of their normal, on either side.
    """
    if grid.spacing is None or not (np.isfinite(positions).all() and np.isfinite(directions).all()):
        return None
    positions, directions = positions.astype(np.float64), directions.astype(np.float64)
    axes, spacing = directions[0].copy(), grid.spacing
    centres = positions[np.unique(slices, return_index=True)[1]]
    if (
        np.abs(directions - axes).max() > _SKEW
        or np.abs(axes @ axes.T - np.eye(3)).max() > _SKEW
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
    return Slices(corners, axes, spacing) if np.abs(corners).max() <= _FARTHEST / 2 else None


def against(directions: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Turn those of the axes that are encoded by gradients: of all but the normal of slices."""
    encoded = 3 if grid.partitions > 1 else 2
    return np.concatenate([-directions[:, :encoded], directions[:, encoded:]], 1)


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(type(x) in (int, float) and abs(x) <= _FARTHEST for x in value)  # NaN is not
    )


def _matrix(directions: NDArray[Any], position: NDArray[Any], rec: Reconstruction) -> NDArray[np.float64]:
    matrix = np.eye(4)
    matrix[:3, :3] = directions.T * (rec.spacing or (1.0, 1.0, 1.0))
    matrix[:3, 3] = position
    return matrix
