"""Where voxels lie in the patient."""

from __future__ import annotations

import numpy as np
import pytest

from upmri import InputError
from upmri.core import geometry

PLACE = {"position": [1.0, 2.0, 3.0], "readout": [0.0, 1.0, 0.0], "phase": [1.0, 0.0, 0.0], "slice": [0.0, 0.0, -1.0]}
SPACING = (2.0, 3.0, 4.0)


def test_a_voxel_is_its_indices_along_the_directions():
    matrix = geometry.affine(SPACING, {"geometry": PLACE})
    for i, j, k in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (5, 6, 7)):
        expected = (1 + 3 * j, 2 + 2 * i, 3 - 4 * k)
        np.testing.assert_allclose(matrix @ [i, j, k, 1], [*expected, 1])


def test_directions_that_are_nearly_perpendicular_become_so():
    tilted = PLACE | {"readout": [0.0004, 1.0, 0.0]}
    axes = geometry.affine(None, {"geometry": tilted})[:3, :3]
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)


def test_without_geometry_there_is_no_matrix_and_axial_is_assumed():
    assert geometry.affine(SPACING, {}) is None
    np.testing.assert_allclose(geometry.axial(SPACING) @ [1, 1, 1, 1], [3, 2, 4, 1])


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {},
        PLACE | {"position": [1.0, 2.0]},
        PLACE | {"position": [1.0, 2.0, float("nan")]},
        PLACE | {"position": [1.0, 2.0, 1e7]},
        PLACE | {"slice": [0.0, 0.0, 2.0]},
        PLACE | {"phase": [0.0, 1.0, 0.0]},
        PLACE | {"phase": ["a", "b", "c"]},
    ],
)
def test_what_is_no_geometry_is_named(wrong):
    with pytest.raises(InputError) as error:
        geometry.affine(SPACING, {"geometry": wrong})
    assert error.value.field == 'meta["geometry"]'
    for start, apart in ((0, 1), (2, 1), (1, 2)):  # slices can be taken all the same
        assert "geometry" in geometry.cut(SPACING, {"geometry": wrong}, start, apart)["meta"]


def test_slices_keep_their_place():
    kept = geometry.cut(SPACING, {"geometry": PLACE, "x": 1}, 3, 2)
    assert kept["spacing"] == (2.0, 3.0, 8.0)
    assert kept["meta"] == {"geometry": PLACE | {"position": [1.0, 2.0, 3 - 3 * 4.0]}, "x": 1}
    whole, part = geometry.affine(SPACING, {"geometry": PLACE}), geometry.affine(kept["spacing"], kept["meta"])
    np.testing.assert_allclose(part @ [1, 2, 1, 1], whole @ [1, 2, 5, 1])


def test_what_is_no_stack_has_no_geometry():
    assert geometry.cut(SPACING, {"geometry": PLACE}, 0, 0)["meta"] == {}
    assert geometry.cut(None, {"geometry": PLACE}, 1, 1)["meta"] == {}
    assert geometry.cut(None, {"geometry": PLACE}, 0, 1)["meta"] == {"geometry": PLACE}


def test_frames_are_not_further_apart_in_space():
    assert geometry.cut(SPACING, {"axes": {"frame": 4, "slice": 2}}, 0, 2)["spacing"] == SPACING
    assert geometry.cut(SPACING, {"axes": {"slice": 8}}, 0, 2)["spacing"] == (2.0, 3.0, 8.0)
