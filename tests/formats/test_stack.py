"""Slices are located by what readouts say of them."""

from __future__ import annotations

import numpy as np
import pytest

from upmri.formats import stack
from upmri.formats.grid import Grid

GRID = Grid(8, 8, 6, 1, (2.0, 3.0, 4.0))
AXES = np.array([[0, 1.0, 0], [1, 0, 0], [0, 0, 1]])


def located(centres, grid=GRID, axes=AXES):
    count = len(centres)
    return stack.locate(grid, np.arange(count), np.array(centres, float), np.broadcast_to(axes, (count, 3, 3)))


def test_voxels_lie_around_the_centre_of_their_slice():
    found = located([(1, 2, -7), (1, 2, 0), (1, 2, 7)])
    assert found.spacing == (2.0, 3.0, 7.0)  # the distance of slices, not their thickness
    corner = np.array([1, 2, -7]) - 4 * 2 * AXES[0] - 3 * 3 * AXES[1]
    np.testing.assert_allclose(found.corners[0], corner)
    place = found.geometry(1, None)
    assert place["position"] == pytest.approx(corner + np.array([0, 0, 7]))
    assert [place[name] for name in ("readout", "phase", "slice")] == AXES.tolist()


def test_the_direction_of_slices_is_that_in_which_they_are_counted():
    assert located([(0, 0, 0), (0, 0, -5)]).directions[2].tolist() == [0, 0, -1]


@pytest.mark.parametrize(
    "centres",
    [
        [(0, 0, 0), (0, 0, 5), (0, 0, 11)],  # not evenly apart
        [(0, 0, 0), (0, 1, 5)],  # not along the normal
        [(0, 0, 0), (0, 0, 0.01)],  # one upon the other
        [(0, 0, np.nan)],
        [(0, 0, 1e9)],
    ],
)
def test_what_is_no_stack_has_no_geometry(centres):
    assert located(centres) is None


def test_without_voxels_or_perpendicular_directions_there_is_none():
    assert located([(0, 0, 0)], Grid(8, 8, 6)) is None
    assert located([(0, 0, 0)], axes=np.ones((3, 3))) is None


def test_positions_of_a_slab_run_along_its_readout():
    found = located([(0, 0, 0)], Grid(8, 8, 6, 4, (2.0, 3.0, 4.0)))
    first, second = found.geometry(0, 0), found.geometry(0, 1)
    assert np.subtract(second["position"], first["position"]) == pytest.approx(2 * AXES[0])
    assert [first[name] for name in ("readout", "phase", "slice")] == AXES[[1, 2, 0]].tolist()


def test_encoded_axes_are_reversed_and_the_normal_of_slices_is_not():
    directions = np.broadcast_to(AXES, (2, 3, 3))
    np.testing.assert_array_equal(stack.against(directions, GRID)[1], [-AXES[0], -AXES[1], AXES[2]])
    np.testing.assert_array_equal(stack.against(directions, Grid(8, 8, 6, 4))[0], -AXES)
