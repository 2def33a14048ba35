"""Figures of `lesions.py`: images with lesions, what is left of the lesions, real lesions, and curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lesions import FULL, RATES, Work
from lesions_cases import DIAMETERS
from lesions_tables import SIZES, summary
from upmri.evaluation.plots import curves

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
COLUMNS = ("sense", "l1-wavelet", "modl", "upmri")
CURVES = ("zero-filled", "sense", "l1-wavelet", "modl", "weighted-ssdu", "upmri")
NOTE = "FLAIR: open_ms_data, CC-BY, Lesjak et al. 2016. Coils, phase, lines and noise simulated."
_MARGIN = 8  # pixels around the lesions of a slice that are shown
_REACH = 20  # pixels on each side of a real lesion
_SPOTS = 5


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
    _kept(found, folder / "lesions_kept.png")
    _detectability(found, folder / "lesions_detectability.png")


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


def _kept(found: dict[str, Any], path: Path) -> None:
    panels = {
        f"{rate}×": {name: {d: [found[name][rate]["kept"][d]] for d in DIAMETERS} for name in CURVES} for rate in RATES
    }
    curves(panels, path, xlabel="diameter of the lesion (pixels)", ylabel="contrast kept")


def _detectability(found: dict[str, Any], path: Path) -> None:
    size = SIZES[1]
    panels = {}
    for rate in RATES:
        every = {name: found[name][rate]["d"] for name in CURVES} | {FULL: found[FULL][1]["d"]}
        panels[f"{rate}×, contrast ±{size:g}"] = {
            name: {d: [values[f"{d} {size}"]] for d in DIAMETERS} for name, values in every.items()
        }
    curves(panels, path, xlabel="diameter of the lesion (pixels)", ylabel="d′")


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
    figure.savefig(path)
