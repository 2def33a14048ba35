"""The figures for papers are found in one place."""

import upmri
from upmri.evaluation.comparison import comparison
from upmri.evaluation.plots import curves, violins


def test_all_are_there():
    assert {name: getattr(upmri.figures, name) for name in upmri.figures.__all__} == {
        "comparison": comparison,
        "curves": curves,
        "violins": violins,
    }
