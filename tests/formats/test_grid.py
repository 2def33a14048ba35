"""Where readouts lie on the grid."""

from __future__ import annotations

import numpy as np
import pytest

from upmri import InputError
from upmri.formats.grid import Grid, Table, place, ranked


def table(samples, centre, skip=(0, 0), reverse=False) -> Table:
    zeros = np.zeros(1, np.int64)
    return Table(
        line=zeros,
        partition=zeros,
        counters=np.zeros((1, 5), np.int64),
        samples=np.array([samples]),
        centre=np.array([centre]),
        skip=np.array([skip]),
        reverse=np.array([reverse]),
        calibration=np.array([False]),
    )


@pytest.mark.parametrize(
    ("readout", "places"),
    [
        (table(16, 8), (0, 0, 16)),
        (table(16, 3), (0, 0, 16)),  # as long as the grid: its centre does not count
        (table(12, 4), (4, 4, 16)),
        (table(12, 8), (0, 0, 12)),
        (table(12, 8, reverse=True), (4, 4, 16)),
        (table(16, 8, (1, 2)), (0, 1, 14)),
        (table(16, 8, (1, 2), reverse=True), (0, 2, 15)),
    ],
)
def test_the_centre_of_a_readout_lies_at_that_of_the_grid(readout, places):
    assert readout.places(Grid(16, 8, 4)).tolist() == [list(places)]


@pytest.mark.parametrize("readout", [table(12, 10), table(12, 1), table(20, 10), table(16, 8, (9, 9))])
def test_readouts_that_do_not_fit_are_refused(readout, refused):
    with refused("grid of 16", field="data"):
        readout.places(Grid(16, 8, 4))


def test_counters_are_placed_around_the_centre():
    counter = np.array([1, 2, 5])
    assert place("lines", counter, None, 6).tolist() == [1, 2, 5]
    assert place("lines", counter, 3, 6).tolist() == [1, 2, 5]
    assert place("lines", counter, 2, 8).tolist() == [3, 4, 7]
    assert place("lines", counter, 0, 6).tolist() == [1, 2, 5]  # 0 stands for an unknown centre
    with pytest.raises(InputError) as error:
        place("lines", counter, 4, 4)
    assert error.value.field == "lines"


def test_slices_are_in_the_order_of_their_positions():
    slices = np.array([0, 0, 1, 2])
    positions = np.array([[0, 0, 5.0], [0, 0, 5], [0, 0, -5], [0, 0, 0]])
    assert ranked(slices, positions).tolist() == [2, 2, 0, 1]
    for unknown in (None, np.zeros((4, 3)), np.full((4, 3), np.nan)):
        assert ranked(slices, unknown).tolist() == slices.tolist()


@pytest.mark.parametrize(
    ("sizes", "field"),
    [((0, 1, 1), "samples"), ((4, 5, 1), "readout"), ((4, 4, 0), "lines"), ((4, 4, 4, 2**16), "partitions")],
)
def test_sizes_that_are_impossible_are_refused(sizes, field):
    with pytest.raises(InputError) as error:
        Grid(*sizes)
    assert error.value.field == field
