from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upmri import InputError
from upmri.formats.source import select

bounds = st.none() | st.integers(-12, 12)


@given(bounds, bounds, st.none() | st.integers(1, 12), st.integers(1, 10))
def test_a_range_means_what_it_means_in_python_when_it_is_inside(start, stop, step, count):
    expected = list(range(count))[start:stop:step]
    inside = all(-count <= end <= count for end in (start, stop) if end is not None)
    text = ":".join("" if part is None else str(part) for part in (start, stop, step))
    for wanted in (slice(start, stop, step), text):
        if inside and expected:
            assert list(select(wanted, count)) == expected
        else:
            with pytest.raises(InputError, match=f"{count} slice"):
                select(wanted, count)


@pytest.mark.parametrize("one", [3, -4, np.int64(3), "3", "-4", " 3 "])
def test_an_index_is_one_slice(one):
    assert list(select(one, 7)) == [3]


def test_none_is_all():
    assert list(select(None, 7)) == list(range(7))


@pytest.mark.parametrize("wrong", [7, -8, "7", "", "a", "1:2:3:4", "1.5", 1.5, "::0", "::-1", "5:5", [1], "9" * 5000])
def test_anything_else_says_how_many_there_are(wrong):
    with pytest.raises(InputError, match=r"^slices: expected some of 0 to 6 \(there are 7 slices\)"):
        select(wrong, 7)
