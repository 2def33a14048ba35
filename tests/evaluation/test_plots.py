"""Plots are drawn, the same each time, with what was given."""

import re

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

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


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn."""
    made, plain = [], Figure.savefig

    def keep(self, *args, **given):
        made.append(self)
        plain(self, *args, **given)

    monkeypatch.setattr(Figure, "savefig", keep)
    return made


def legend(figure):
    """Name → colour in the legend."""
    (found,) = figure.legends
    names = [text.get_text() for text in found.get_texts()]
    return dict(zip(names, map(colour, found.legend_handles), strict=True))


def colour(drawn):
    """The colour of a dot's edge, or of a curve with error bars or its bars in the legend."""
    if isinstance(drawn, LineCollection):
        return to_hex(drawn.get_color()[0])
    return to_hex(drawn.lines[0].get_color() if isinstance(drawn, ErrorbarContainer) else drawn.get_markeredgecolor())


def test_a_curve_has_the_colour_of_the_legend_in_every_panel(tmp_path, figures):
    points = {2: [30.0, 31.0], 4: [33.0]}
    panels = {"a": {"sense": points}, "b": {"upmri": points, "sense": points}}
    curves(panels, tmp_path / "c.png", xlabel="T", log=True)
    (figure,) = figures
    assert list(legend(figure)) == ["sense", "upmri"]
    assert len(set(legend(figure).values())) == 2
    for axes, names in zip(figure.axes, (["sense"], ["sense", "upmri"]), strict=True):
        assert [c.get_label() for c in axes.containers] == names
        assert [colour(c) for c in axes.containers] == [legend(figure)[name] for name in names]
    curves({"a": {"sense": points}, "b": {"upmri": points}}, tmp_path / "d.png", xlabel="T")
    assert list(legend(figures[1])) == ["sense", "upmri"]


def test_the_legend_of_violins_has_the_series_of_all_groups_and_panels(tmp_path, figures):
    panels = {
        "heads": {"4×": {"sense": [30.0]}, "8×": {"sense": [27.0], "upmri": [29.0]}},
        "hearts": {"4×": {"modl": [31.0], "sense": [30.0]}},
    }
    violins(panels, tmp_path / "v.png")
    (figure,) = figures
    assert list(legend(figure)) == ["sense", "upmri", "modl"]
    assert len(set(legend(figure).values())) == 3
    for axes in figure.axes:
        for line in axes.lines:
            if not line.get_label().startswith("_"):
                assert colour(line) == legend(figure)[line.get_label()]


def test_a_legend_does_not_need_a_first_panel_or_group(tmp_path, figures):
    points = {2: [30.0, 31.0], 4: [33.0]}
    curves({"none": {}, "a": {"empty": {2: []}, "sense": points, "upmri": points}}, tmp_path / "c.png", xlabel="T")
    violins({"none": {}, "a": {"2×": {}, "4×": {"empty": [], "sense": [1.0], "upmri": [2.0]}}}, tmp_path / "v.png")
    assert [list(legend(figure)) for figure in figures] == [["sense", "upmri"]] * 2


def test_panels_without_values_are_empty(tmp_path, figures):
    curves({"a": {}, "b": {"x": {}, "y": {1: []}}}, tmp_path / "c.png", xlabel="T")
    violins({"a": {}, "b": {"4×": {"x": [], "y": []}}}, tmp_path / "v.png")
    assert [len(figure.legends) for figure in figures] == [0, 0]


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(InputError) as error:
        violins(PANELS, tmp_path / "v.doc")
    assert error.value.field == "path"
    with pytest.raises(InputError) as error:
        curves({}, tmp_path / "c.pdf", xlabel="T")
    assert error.value.field == "panels"
    assert not list(tmp_path.iterdir())
