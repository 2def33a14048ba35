"""Bounds of a reconstruction: their text, and that slices keep theirs."""

import json
import math

import pytest
import torch

from upmri.core.bounds import CONDITION, NOT_COVERED, Bounds
from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction


def one(psnr=31.23, width=6, **changes):
    values = {"confidence": 0.9, "psnr": (psnr,), "ssim": (0.9,), "reasons": ("",)}
    values["lines"] = torch.full((1, width), 0.5)
    return Bounds(**values | changes)


def test_the_sentence_of_one_slice():
    assert one().sentence == ("at least 31.2 dB with 90 % confidence, if this scan is like those of the calibration")
    assert CONDITION in one().sentence


def test_the_sentence_of_several_slices_says_that_each_has_its_own():
    whole = Bounds.join([one(31.23), one(28.0), Bounds.none(0.9, 1, 6, "nothing was sampled")])
    assert whole.sentence.startswith("at least 28.0 to 31.2 dB, each slice its own, with 90 % confidence")
    assert whole.sentence.endswith("no bound for 1 of 3 slices: nothing was sampled")


def test_without_a_bound_there_is_a_reason():
    assert Bounds.none(0.95, 2, 6, "its noise is unusual").sentence == "no bound: its noise is unusual"
    assert "without references" in one(None).sentence


def test_slices_keep_their_bounds():
    whole = Bounds.join([one(31.0), Bounds.none(0.9, 1, 6, "why"), one(29.0, lines=torch.full((1, 6), 2.0))])
    assert len(whole) == 3
    turned = whole.take([2, 0, 1])
    assert turned.psnr == (29.0, 31.0, None)
    assert turned.reasons == ("", "", "why")
    assert turned.lines[:, 0].tolist()[:2] == [2.0, 0.5]
    assert math.isnan(turned.lines[2, 0])
    assert turned.scaled(torch.tensor([2.0, 4.0, 1.0])).lines[:2, 0].tolist() == [4.0, 2.0]


def test_intervals_of_pixels():
    image, std = torch.tensor([[[3.0 + 4j, 1.0]]]), torch.tensor([[[1.0, 1.0]]])
    low, high = one(deviations=1.5).interval(image, std)
    assert low.tolist() == [[[3.5, 0.0]]]
    assert high.tolist() == [[[6.5, 2.5]]]
    with pytest.raises(InputError, match="samples"):
        one().interval(image, std)


def test_a_header_and_its_lines_give_back_the_same():
    whole = Bounds.join([one(deviations=2.0), Bounds.none(0.9, 1, 6, "why")])
    again = Bounds.from_header(json.loads(json.dumps(whole.header)), whole.lines)
    assert again.header == whole.header
    assert again.deviations == 2.0


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": None},
        {"confidence": 2.0},
        {"psnr": 3},
        {"psnr": []},
        {"psnr": [math.nan]},
        {"ssim": ["a", "b"]},
        {"deviations": "x"},
    ],
)
def test_a_damaged_header_is_refused(changes):
    with pytest.raises(InputError):
        Bounds.from_header({**one().header, **changes}, one().lines)


def test_a_header_that_lacks_something_is_refused():
    with pytest.raises(InputError, match="reasons"):
        Bounds.from_header({"confidence": 0.9}, one().lines)
    with pytest.raises(InputError, match="slice, phase"):
        Bounds.from_header(one().header, torch.zeros(1, 2, 3))


def test_the_summary_has_the_caveat_and_the_median_line():
    found = one(lines=torch.tensor([[0.0, 1.0, 2.0, 3.0, 0.0, 0.0]])).summary
    assert found["lines"] == [2.0]
    assert found["not covered"] == NOT_COVERED
    assert Bounds.none(0.9, 1, 6, "why").summary["lines"] == [None]
    json.dumps(found, allow_nan=False)


def test_a_reconstruction_shows_its_bounds_and_checks_their_size():
    rec = Reconstruction(image=torch.zeros(1, 4, 6), bounds=one())
    assert "at least 31.2 dB" in repr(rec)
    with pytest.raises(InputError) as caught:
        Reconstruction(image=torch.zeros(2, 4, 6), bounds=one())
    assert caught.value.field == "bounds"
