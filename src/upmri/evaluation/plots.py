"""Plots for papers: distributions as violins, means as curves. Vector files, one look, colours that all can tell apart.

Drawn with matplotlib's object interface alone: no pyplot, no window, no state shared with the caller's own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upmri.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, dark ones first, without the yellow that paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vP*"
_WIDTH, _HEIGHT = 3.4, 2.4  # inches of a panel
_HANDLE, _LETTER = 0.6, 0.065  # inches of a legend's entry: its line and gap, and every letter
_LINE = 0.17  # of its lines
_TICKS = 8
_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "upmri",
    "pdf.fonttype": 42,
}


def violins(
    panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], path: str | Path, *, ylabel: str = "PSNR (dB)"
) -> Path:
    """Draw distributions: a panel each, in it a place on the axis each, and there a violin of every series.

    Parameters
    ----------
    panels
        Title → place → series → values. A dot is the mean, a bar the range of the middle half.
    path
        ``.pdf``, ``.svg`` or ``.png``.
    ylabel
        What the values are.
    """
    series = list(dict.fromkeys(name for places in panels.values() for at in places.values() for name in at))

    def draw(axes: Axes, title: str) -> None:
        places = panels[title]
        width = 0.8 / max(1, len(series))
        for i, at in enumerate(places):
            for j, name in enumerate(series):
                if name not in places[at]:
                    continue
                values, x = np.asarray(places[at][name], float), i + (j - (len(series) - 1) / 2) * width
                colour = COLOURS[j % len(COLOURS)]
                if len(values) > 2 and values.std() > 0:
                    body = axes.violinplot([values], [x], widths=0.92 * width, showextrema=False)["bodies"][0]  # type: ignore[index]
                    body.set(facecolor=colour, alpha=0.35, edgecolor=colour, linewidth=0.8)
                axes.plot([x, x], np.quantile(values, [0.25, 0.75]), color=colour, linewidth=2.2)
                label = name if i == 0 else None
                axes.plot(x, values.mean(), "o", color="white", markeredgecolor=colour, markersize=4, label=label)
        axes.set_xticks(range(len(places)), labels=list(places))
        axes.grid(axis="x", visible=False)

    return _save(list(panels), draw, path, ylabel, legend=len(series) > 1)


def curves(
    panels: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    path: str | Path,
    *,
    xlabel: str,
    ylabel: str = "PSNR (dB)",
    log: bool = False,
) -> Path:
    """Draw means over a setting, a panel each, with the standard error of each mean.

    Parameters
    ----------
    panels
        Title → series → setting → values.
    path
        ``.pdf``, ``.svg`` or ``.png``.
    xlabel, ylabel
        What the setting and the values are.
    log
        Whether the setting's axis is logarithmic.
    """

    def draw(axes: Axes, title: str) -> None:
        for j, (name, points) in enumerate(panels[title].items()):
            x = sorted(points)
            means = [float(np.mean(points[at])) for at in x]
            errors = [float(np.std(points[at]) / max(1, len(points[at]) - 1) ** 0.5) for at in x]
            colour, marker = COLOURS[j % len(COLOURS)], _MARKERS[j % len(_MARKERS)]
            axes.errorbar(
                x, means, errors, color=colour, marker=marker, markersize=4, linewidth=1.4, capsize=2, label=name
            )
        if log:
            axes.set_xscale("log")
        known = sorted({at for points in panels[title].values() for at in points})
        if len(known) <= _TICKS:  # the settings themselves, instead of powers of ten
            axes.set_xticks(known, labels=[f"{at:g}" for at in known])
            axes.minorticks_off()
        axes.set_xlabel(xlabel)

    return _save(list(panels), draw, path, ylabel, legend=any(len(series) > 1 for series in panels.values()))


def _save(titles: list[str], draw: Callable[[Axes, str], None], path: str | Path, ylabel: str, *, legend: bool) -> Path:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise InputError(f"path: expected a .png, .pdf or .svg file, got {path.name!r}")
    if not titles:
        raise InputError("panels: expected at least one")
    with mpl.rc_context(_STYLE):
        figure: Figure = Figure(figsize=(_WIDTH * len(titles), _HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        row = figure.subplots(1, len(titles), squeeze=False)[0]
        for axes, title in zip(row, titles, strict=True):
            draw(axes, title)
            axes.set_title(title, loc="left", fontweight="bold", fontsize=9)
            axes.set_ylabel(ylabel)
        if legend:
            handles, names = row[0].get_legend_handles_labels()
            columns = int(_WIDTH * len(titles) / (_HANDLE + _LETTER * max(map(len, names))))
            columns = max(1, min(columns, len(names)))
            figure.set_size_inches(_WIDTH * len(titles), _HEIGHT + _LINE * -(-len(names) // columns))
            figure.legend(handles, names, loc="outside lower center", ncols=columns)
        # No date in the file: the same figure is the same bytes.
        metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower(), {})
        figure.savefig(path, dpi=200, metadata=metadata)
    return path
