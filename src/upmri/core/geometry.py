"""Where the voxels of an image lie in the patient, for the formats that know it.

A scan has it in ``meta["geometry"]``, a dictionary of four lists of three numbers each, in DICOM's coordinates (x to
the left, y to the back, z to the head):

``position``
    Centre of voxel (0, 0, 0) of this image, in its first slice, in mm.
``readout``, ``phase``, ``slice``
    Unit vectors, perpendicular to each other, along which the index of that axis grows; voxel (i, j, k) is centred at
    position + i·spacing[0]·readout + j·spacing[1]·phase + k·spacing[2]·slice. They may be left-handed.

A scan has it only if its slices are a stack in space: evenly apart, one above the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.core.fields import Settings

Spacing = tuple[float, float, float]

AXES = ("readout", "phase", "slice")
_AXIAL = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # rows are the directions of AXES
FARTHEST = 1e6  # mm
SKEW = 1e-3  # the largest error of the product of two directions
_FIELD = 'meta["geometry"]'


def affine(spacing: Spacing | None, meta: Settings) -> NDArray[np.float64] | None:
    """Return the 4×4 matrix from (readout, phase, slice) indices to mm in DICOM's coordinates, None if not known."""
    given = meta.get("geometry")
    if given is None:
        return None
    names = ("position", *AXES)
    if not _has_vectors(given, *names):
        raise InputError(
            f"expected {', '.join(names)}, each a list of three numbers (at most {FARTHEST:g})", field=_FIELD
        )
    directions = np.array([given[name] for name in AXES], float)
    if np.abs(directions @ directions.T - np.eye(3)).max() > SKEW:
        raise InputError("expected unit vectors perpendicular to each other as readout, phase, slice", field=_FIELD)
    u, _, v = np.linalg.svd(directions)  # U V are the nearest that are exactly perpendicular
    return _matrix(u @ v, np.array(given["position"], float), spacing)


def axial(spacing: Spacing | None) -> NDArray[np.float64]:
    """Return the matrix for images whose geometry is not known: axial from the origin on, rows to the left."""
    return _matrix(_AXIAL, np.zeros(3), spacing)


def cut(spacing: Spacing | None, meta: Settings, start: int, step: int) -> Settings:
    """Return ``spacing`` and ``meta`` of some slices only: number ``start``, and every ``step``-th after it.

    With ``step`` 0 they are no stack in space, and have no geometry. Without a geometry, slices count as a stack
    unless ``meta`` names frames.
    """
    place: Any = meta.get("geometry")
    axes = meta.get("axes")
    if place is not None and (step == 0 or (spacing is None and (start > 0 or step > 1))):
        meta = {key: value for key, value in meta.items() if key != "geometry"}
    # A geometry that is wrong is left as it is; affine() refuses it.
    elif spacing is not None and start > 0 and _has_vectors(place, "position", "slice"):
        axis = zip(place["position"], place["slice"], strict=True)
        meta = meta | {"geometry": place | {"position": [x + start * spacing[2] * along for x, along in axis]}}
    frames = "frames" in meta or (isinstance(axes, dict) and not axes.keys() <= {"slice", "readout"})
    if spacing is not None and step > 1 and (place is not None or not frames):
        spacing = (spacing[0], spacing[1], spacing[2] * step)
    return {"spacing": spacing, "meta": meta}


def _has_vectors(given: Any, *names: str) -> bool:
    return isinstance(given, dict) and all(_is_vector(given.get(name)) for name in names)


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(type(x) in (int, float) and abs(x) <= FARTHEST for x in value)  # NaN is not
    )


def _matrix(directions: NDArray[Any], position: NDArray[Any], spacing: Spacing | None) -> NDArray[np.float64]:
    matrix = np.eye(4)
    matrix[:3, :3] = directions.T * (spacing or (1.0, 1.0, 1.0))
    matrix[:3, 3] = position
    return matrix
