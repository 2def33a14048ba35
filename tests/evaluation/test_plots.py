"""Plots are drawn, the same each time, with what was given."""

import re

import numpy as np
import pytest

from upmri import InputError
from upmri.evaluation.plots import curves, violins

RNG = np.random.default_rng(0)
PANELS = {"heads": {"4×": {"sense": RNG.normal(30, 1, 20), "upmri": RNG.normal(33, 1, 20)}, "8×": {"sense": [27.0]}}}
LINES = {"heads": {"upmri, 4×": {2: [30.0, 31.0], 10: [33.0, 34.0], 50: [34.0]}}}


def text(path):
    return re.sub(r"<[^>]*>", " ", path.read_text())


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_the_same_figure_is_the_same_bytes(tmp_path, suffix):
    for name, draw in (("v", lambda p: violins(PANELS, p)), ("c", lambda p: curves(LINES, p, xlabel="steps"))):
        first, again = (draw(tmp_path / f"{name}{i}.{suffix}").read_bytes() for i in range(2))
        assert first == again
        assert len(first) > 2000


def test_everything_that_was_given_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")
    shown = text(violins(PANELS, tmp_path / "v.svg", ylabel="SSIM"))
    assert all(word in shown for word in ("heads", "4×", "8×", "sense", "upmri", "SSIM"))
    shown = text(curves(LINES | {"hearts": LINES["heads"]}, tmp_path / "c.svg", xlabel="T", log=True))
    assert all(word in shown for word in ("heads", "hearts", "T", "PSNR"))


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(InputError) as error:
        violins(PANELS, tmp_path / "v.doc")
    assert error.value.field == "path"
    with pytest.raises(InputError) as error:
        curves({}, tmp_path / "c.pdf", xlabel="T")
    assert error.value.field == "panels"
    assert not list(tmp_path.iterdir())
