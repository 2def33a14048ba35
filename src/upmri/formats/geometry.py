"""Where the voxels of an image lie in the patient, for the formats that can say so.

It is what the scan says in ``meta["geometry"]``, a dictionary of four lists of three
numbers each, in DICOM's coordinates (x to the left, y to the back, z to the head):

``position``
    Centre of voxel (0, 0, 0) of this very image, its first slice, in mm.
``readout``, ``phase``, ``slice``
    Unit vectors, perpendicular to each other, along which the index of that axis grows; voxel (i, j, k) is centred at
    position + i·spacing[0]·readout + j·spacing[1]·phase + k·spacing[2]·slice. They may be left-handed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.errors import InputError
from upmri.scan import Reconstruction

_AXES = ("readout", "phase", "slice")
_AXIAL = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # rows are the directions of _AXES
_FARTHEST = 1e6  # mm
_SKEW = 1e-3


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
