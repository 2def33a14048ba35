"""What a page says about a result."""

import pytest
import torch

from upmri.core.scan import Reconstruction
from upmri.evaluation.report.statements import statements_of


def said(**settings):
    return dict(statements_of(Reconstruction(image=torch.ones(1, 4, 4), settings=settings)))


def test_nothing_is_said_without_facts():
    assert said() == {}
    assert said(adaptation="yes", held_out_gain=None, maps_quality="good") == {}


def test_gain_of_adaptation():
    found = said(adaptation={"gain": 0.812, "steps": 45, "slices": 1, "seconds": 31.24})
    assert found == {"adaptation": "+0.81 dB on held-out lines after 45 steps on 1 slice, in 31.2 s"}


@pytest.mark.parametrize("facts", [{"gain": 0.0, "steps": 0, "seconds": 2}, {"gain": float("nan"), "seconds": 2}])
def test_no_gain(facts):
    assert said(adaptation=facts) == {"adaptation": "no gain on held-out lines: the weights are unchanged, in 2.0 s"}


def test_choice_and_maps():
    found = said(held_out_gain=-1.234, maps_quality="poor", maps_from="joint estimation")
    assert found == {
        "choice of weights": "-1.23 dB over SENSE on held-out lines",
        "coil maps": "poor (joint estimation)",
    }
