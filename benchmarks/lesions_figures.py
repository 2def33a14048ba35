"""Figures of `lesions.py`: images with lesions, what is left of the lesions, real lesions, and curves."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lesions import FULL, RATES, Work
from lesions_cases import DIAMETERS
from lesions_tables import FAINT, summary
from upmri.evaluation.plots import COLOURS

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
COLUMNS = ("sense", "l1-wavelet", "modl", "upmri")
CURVES = ("zero-filled", "sense", "l1-wavelet", "modl", "weighted-ssdu", "upmri")
NOTE = "FLAIR: open_ms_data, CC-BY, Lesjak et al. 2016. Coils, phase, lines and noise simulated."
_MARGIN = 8  # pixels around the lesions of a slice that are shown
_REACH = 20  # pixels on each side of a real lesion
_SPOTS = 5
_COLOURS = 160  # of the palette of a figure with images


def draw(work: Work, part: str) -> None:
    """Write the figures: into the docs for test people, else into the work folder."""
    folder = FIGURES if part == "test" else work.folder
    rows = list(work.rows.values())
    pictured = [row for row in rows if row["part"] == "deviation synthetic"]
    if pictured:
        row = next(r for r in rows if r["part"] == "synthetic" and r["slice"] == pictured[0]["slice"])
        _images(work, row, folder / "lesions_images.png")
        _changes(work, row, folder / "lesions_change.png")
    _real(work, [r for r in rows if r["part"] == "real" and r["method"] == FULL], folder / "lesions_real.png")
    found = summary(work, part)["synthetic"]
    _curves(found, folder / "lesions_curves.png")


def _images(work: Work, row: dict[str, Any], path: Path) -> None:
    """Rates by methods: the reconstruction with lesions, and the deviation of `upmri` in the last column."""
    box, where = _box(row), row["slice"]
    full = _load(work, f"{where} {FULL} 1", "lesions_True")[box]
    top = np.quantile(full, 0.995)
    figure, axes = _grid(len(RATES), 2 + len(COLUMNS), full.shape)
    for line, rate in zip(axes, RATES, strict=True):
        _show(line[0], full, top)
        for at, (diameter, contrast) in zip(row["place"], row["kind"], strict=True):
            _circle(line[0], at, box, diameter, "#E69F00" if contrast > 0 else "#56B4E9")
        for panel, name in zip(line[1:], COLUMNS, strict=False):
            _show(panel, _load(work, f"{where} {name} {rate}", "lesions_True")[box], top)
        deviation = _load(work, f"{where} deviation {rate}", "lesions_True")[box]
        _show(line[-1], deviation, top / 5, "inferno")
        _left(line[0], f"{rate}×")
    _titles(axes[0], ["all lines, lesions marked", *COLUMNS, "upmri, deviation ×5"])
    _save(figure, path, f"25 synthetic lesions (bright: orange, dark: blue). {NOTE}")


def _changes(work: Work, row: dict[str, Any], path: Path) -> None:
    """Rates by methods: the reconstruction with lesions minus that without."""
    box, where = _box(row), row["slice"]

    def change(name: str, rate: int) -> NDArray[np.floating]:
        pair = (_load(work, f"{where} {name} {rate}", f"lesions_{there}") for there in (True, False))
        one, other = pair
        return (one - other)[box]

    full = change(FULL, 1)
    top = np.abs(full).max() * 0.6
    figure, axes = _grid(len(RATES), 1 + len(COLUMNS), full.shape)
    for line, rate in zip(axes, RATES, strict=True):
        for panel, values in zip(line, [full, *(change(name, rate) for name in COLUMNS)], strict=True):
            panel.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top)
        _left(line[0], f"{rate}×")
    _titles(axes[0], ["all lines", *COLUMNS])
    _save(figure, path, f"With synthetic lesions minus without, same lines and noise; red: brighter. {NOTE}")


def _real(work: Work, rows: list[dict[str, Any]], path: Path) -> None:
    """Bright spots of all slices, one a row: all lines, and `sense` and `upmri` at every rate."""
    spots = [(row["slice"], spot) for row in rows for spot in row["spots"]]
    chosen = [spots[i * len(spots) // min(_SPOTS, len(spots))] for i in range(min(_SPOTS, len(spots)))]
    figure, axes = _grid(len(chosen), 1 + 2 * len(RATES), (1, 1))
    for line, (where, (row, column, diameter)) in zip(axes, chosen, strict=True):
        box = (slice(row - _REACH, row + _REACH), slice(column - _REACH, column + _REACH))
        full = _load(work, f"{where} {FULL} 1", "lesions_False")[box]
        low, top = np.quantile(full, 0.02), full.max()
        names = [(name, rate) for name in ("upmri", "sense") for rate in RATES]
        images = [full, *(_load(work, f"{where} {name} {rate}", "lesions_False")[box] for name, rate in names)]
        for panel, image in zip(line, images, strict=True):
            panel.imshow(image, cmap="gray", vmin=low, vmax=top)
        _circle(line[0], (row, column), box, diameter, "#E69F00")
        _left(line[0], f"{diameter:g} px")
    _titles(axes[0], ["all lines", *(f"{name}, {rate}×" for name, rate in names)])
    _save(figure, path, f"Real bright spots, one in each row. {NOTE}")


def _curves(found: dict[str, Any], path: Path) -> None:
    """Contrast kept, and d′ of faint lesions, over the diameter; one column for each rate, one scale for each row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.6), dpi=110, layout="constrained")
    axes = figure.subplots(2, len(RATES), sharex=True, sharey="row")
    for (upper, lower), rate in zip(axes.T, RATES, strict=True):
        for j, name in enumerate((*CURVES, FULL)):
            values = found[name][1 if name == FULL else rate]
            look = {"color": COLOURS[j], "marker": "osD^vP*"[j], "markersize": 4, "linewidth": 1.3, "label": name}
            upper.plot(DIAMETERS, [values["kept"][d] for d in DIAMETERS], **look)
            points = {d: values["d"][f"{d} {FAINT}"] for d in DIAMETERS if f"{d} {FAINT}" in values["d"]}
            lower.plot(list(points), list(points.values()), **look)
        upper.set_title(f"{rate}×", loc="left", fontsize=9, fontweight="bold")
        upper.set_ylim(0, 1.05)
        lower.set_ylim(bottom=0)
        lower.set_xticks(DIAMETERS)
        lower.set_xlabel("diameter of the lesion (pixels)", fontsize=8)
        for panel in (upper, lower):
            panel.grid(color="#e3e6ea", linewidth=0.6)
            panel.tick_params(labelsize=7)
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("contrast kept", fontsize=8)
    axes[1, 0].set_ylabel(f"d′, contrast ±{FAINT:g}", fontsize=8)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7, frameon=False)
    figure.savefig(path)


def _box(row: dict[str, Any]) -> tuple[slice, slice]:
    rows, columns = zip(*row["place"], strict=True)
    return tuple(slice(int(min(p)) - _MARGIN, int(max(p)) + _MARGIN + 1) for p in (rows, columns))  # type: ignore[return-value]


def _load(work: Work, name: str, key: str) -> NDArray[np.floating]:
    return np.load(work.folder / f"{name}.npz")[key]


def _grid(rows: int, columns: int, shape: tuple[int, ...]) -> Any:
    from matplotlib.figure import Figure

    width = 1.5
    height = width * shape[0] / shape[1]
    figure = Figure(figsize=(columns * width + 0.3, rows * height + 0.55), dpi=110)
    box = {"left": 0.3 / (columns * width + 0.3), "right": 0.998, "wspace": 0.02, "hspace": 0.02}
    total = rows * height + 0.55
    box |= {"bottom": 0.25 / total, "top": 1 - 0.3 / total}
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=box)
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    return figure, axes


def _show(panel: Any, image: NDArray[np.floating], top: float, colours: str = "gray") -> None:
    panel.imshow(image, cmap=colours, vmin=0, vmax=top)


def _circle(panel: Any, at: Any, box: tuple[slice, slice], diameter: float, colour: str) -> None:
    from matplotlib.patches import Circle

    centre = (at[1] - box[1].start, at[0] - box[0].start)
    panel.add_patch(Circle(centre, diameter / 2 + 3, fill=False, color=colour, linewidth=0.6))


def _titles(line: Any, names: list[str]) -> None:
    for panel, name in zip(line, names, strict=True):
        panel.set_title(name, fontsize=7, pad=3)


def _left(panel: Any, text: str) -> None:
    panel.set_ylabel(text, fontsize=8, labelpad=2)


def _save(figure: Any, path: Path, note: str) -> None:
    figure.text(0.01, 0.006, note, fontsize=6, va="bottom")
    out = BytesIO()
    figure.savefig(out, format="png")
    with Image.open(out) as drawn:  # a palette makes the file a third as large
        drawn.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
