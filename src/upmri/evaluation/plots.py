"""Plots for papers: distributions as violins, means as curves, in colours that are safe for colour blindness.

Only matplotlib's object interface is used: no pyplot, no window, no state shared with the caller's own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upmri.core.errors import InputError
from upmri.formats import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, dark ones first, without yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vP*"
_WIDTH, _HEIGHT = 3.4, 2.4  # inches of a panel
_HANDLE, _LETTER = 0.6, 0.065  # width in inches of a legend entry: its line and gap, and each letter
_LINE = 0.17  # height in inches of a line of the legend
_TICKS = 8  # most settings that are labelled one by one
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
    """Draw distributions: one violin for each series, grouped along the axis, in one or more panels.

    A series has the same colour in all panels.

    Parameters
    ----------
    panels
        Title → group on the axis → series → values. A dot is the mean, a bar spans the middle half of the values.
    path
        File to write: ``.pdf``, ``.svg`` or ``.png``. An existing file is replaced.
    ylabel
        Label of the values.
    """
    series = list(dict.fromkeys(name for groups in panels.values() for group in groups.values() for name in group))

    def draw(axes: Axes, title: str) -> None:
        groups = panels[title]
        width = 0.8 / max(1, len(series))
        for i, group in enumerate(groups):
            for j, name in enumerate(series):
                if not len(groups[group].get(name, ())):
                    continue
                values, x = np.asarray(groups[group][name], float), i + (j - (len(series) - 1) / 2) * width
                colour = COLOURS[j % len(COLOURS)]
                if len(values) > 2 and values.std() > 0:
                    body = axes.violinplot([values], [x], widths=0.92 * width, showextrema=False)["bodies"][0]  # type: ignore[index]
                    body.set(facecolor=colour, alpha=0.35, edgecolor=colour, linewidth=0.8)
                axes.plot([x, x], np.quantile(values, [0.25, 0.75]), color=colour, linewidth=2.2)
                axes.plot(x, values.mean(), "o", color="white", markeredgecolor=colour, markersize=4, label=name)
        axes.set_xticks(range(len(groups)), labels=list(groups))
        axes.grid(axis="x", visible=False)

    return _save(list(panels), draw, path, ylabel, series)


def curves(
    panels: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    path: str | Path,
    *,
    xlabel: str,
    log: bool = False,
) -> Path:
    """Draw means of PSNR in dB over a setting, with the standard error of each mean, in one or more panels.

    A series has the same colour in all panels.

    Parameters
    ----------
    panels
        Title → series → setting → values.
    path
        File to write: ``.pdf``, ``.svg`` or ``.png``. An existing file is replaced.
    xlabel
        Label of the setting.
    log
        Whether the setting's axis is logarithmic.
    """
    series = list(dict.fromkeys(name for panel in panels.values() for name in panel))

    def draw(axes: Axes, title: str) -> None:
        for j, name in enumerate(series):
            points = panels[title].get(name, {})
            x = sorted(at for at in points if len(points[at]))
            if not x:
                continue
            means = [float(np.mean(points[at])) for at in x]
            errors = [float(np.std(points[at]) / max(1, len(points[at]) - 1) ** 0.5) for at in x]
            # From the eighth series on, colours come again with other markers.
            colour, marker = COLOURS[j % len(COLOURS)], _MARKERS[(j + j // len(COLOURS)) % len(_MARKERS)]
            axes.errorbar(
                x, means, errors, color=colour, marker=marker, markersize=4, linewidth=1.4, capsize=2, label=name
            )
        if log:
            axes.set_xscale("log")
        known = sorted({at for points in panels[title].values() for at in points})
        if len(known) <= _TICKS:  # label the settings themselves, not powers of ten
            axes.set_xticks(known, labels=[f"{at:g}" for at in known])
            axes.minorticks_off()
        axes.set_xlabel(xlabel)

    return _save(list(panels), draw, path, "PSNR (dB)", series)


def _save(
    titles: list[str], draw: Callable[[Axes, str], None], path: str | Path, ylabel: str, series: Sequence[str]
) -> Path:
    """Draw the panels; a legend has the series of all panels, in this order, if there are several."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise InputError(f"expected a .png, .pdf or .svg file, got {path.name!r}", field="path")
    if not titles:
        raise InputError("expected at least one", field="panels")
    with mpl.rc_context(_STYLE):
        figure: Figure = Figure(figsize=(_WIDTH * len(titles), _HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        row = figure.subplots(1, len(titles), squeeze=False)[0]
        for axes, title in zip(row, titles, strict=True):
            draw(axes, title)
            axes.set_title(title, loc="left", fontweight="bold", fontsize=9)
            axes.set_ylabel(ylabel)
        drawn = {name: handle for axes in row for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        names = [name for name in series if name in drawn]
        if len(series) > 1 and names:
            columns = int(_WIDTH * len(titles) / (_HANDLE + _LETTER * max(map(len, names))))
            columns = max(1, min(columns, len(names)))
            figure.set_size_inches(_WIDTH * len(titles), _HEIGHT + _LINE * -(-len(names) // columns))
            figure.legend([drawn[name] for name in names], names, loc="outside lower center", ncols=columns)
        # No date in the file, so that the same figure gives the same bytes.
        metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower(), {})
        with atomic.staged(path, overwrite=True) as stage:
            figure.savefig(stage, dpi=200, metadata=metadata)
    return path
