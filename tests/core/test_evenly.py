"""A few items out of many."""

from upmri.core.evenly import evenly


def test_items_are_the_middle_ones_of_equal_parts():
    assert evenly(range(9), 3) == [1, 4, 7]
    assert evenly("abcdef", 1) == ["d"]


def test_there_are_no_more_than_there_are_items():
    assert evenly([3, 1, 2], 7) == [3, 1, 2]
    assert evenly([], 4) == evenly([1, 2], 0) == []
