from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri import load, reconstruct
from upmri.formats import open_source
from upmri.formats.source import select_slices

bounds = st.none() | st.integers(-12, 12)


@given(bounds, bounds, st.none() | st.integers(1, 12), st.integers(1, 10))
def test_a_range_means_what_it_means_in_python_when_it_is_inside(refused, start, stop, step, count):
    expected = list(range(count))[start:stop:step]
    ends = (start, None if start is None and (stop or 0) > 0 else stop)  # ":4" is at most four slices
    inside = all(-count <= end <= count for end in ends if end is not None)
    text = ":".join("" if part is None else str(part) for part in (start, stop, step))
    for wanted in (slice(start, stop, step), text):
        if inside and expected:
            assert list(select_slices(wanted, count)) == expected
        else:
            with refused(f"{count} slice", field="slices"):
                select_slices(wanted, count)


@pytest.mark.parametrize("one", [3, -4, np.int64(3), "3", "-4", " 3 "])
def test_an_index_is_one_slice(one):
    assert list(select_slices(one, 7)) == [3]


def test_none_is_all():
    assert list(select_slices(None, 7)) == list(range(7))


@pytest.mark.parametrize("wrong", [7, -8, "7", "", "a", "1:2:3:4", "1.5", 1.5, "::0", "::-1", "5:5", [1], "9" * 5000])
def test_anything_else_says_how_many_there_are(wrong, refused):
    with refused("7 slices", field="slices"):
        select_slices(wrong, 7)


@pytest.mark.parametrize("slices", [None, "1:4", "::2", "3", "4::9"])
@pytest.mark.parametrize("suffix", ["h5", "npz"])
def test_slices_one_by_one_are_those_read_at_once(tmp_path, scan, suffix, slices):
    path = tmp_path / f"x.{suffix}"
    if suffix == "h5":
        replace(scan, meta={}).save(path)
    else:
        np.savez(path, kspace=scan.kspace, spacing=scan.spacing)
    together = load(path, slices)
    with open_source(path) as source:
        apart = list(source.each(slices))
    assert torch.equal(torch.cat([one.kspace for one in apart]), together.kspace)
    assert {one.spacing for one in (together, *apart)} == {(1.0, 2.5, 2 / 3 if slices == "::2" else 1 / 3)}


@pytest.mark.filterwarnings("ignore:maps")  # they are random numbers
def test_a_reconstruction_of_some_slices_lies_where_they_do(tmp_path, scan):
    place = {"position": [1, 2, 3], "readout": [0, 1, 0], "phase": [0, 0, 1], "slice": [1, 0, 0]}
    with open_source(replace(scan, meta={"geometry": place}).save(tmp_path / "x.h5")) as source:
        for slices, left, between in ((None, 1, 1 / 3), ("2:4", 1 + 2 / 3, 1 / 3), ("1::2", 1 + 1 / 3, 2 / 3)):
            rec = reconstruct(source.read(slices), "zero-filled")
            first, *_ = source.each(slices)
            for found in (rec, first):
                assert found.spacing == pytest.approx((1, 2.5, between))
                assert found.meta["geometry"] == place | {"position": pytest.approx([left, 2, 3])}
