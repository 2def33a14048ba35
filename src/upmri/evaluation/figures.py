"""Figures of reconstructions beside the truth.

Drawn with matplotlib's object interface alone: no pyplot, no window, no state shared with the caller's own figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from upmri.errors import InputError
from upmri.evaluation.metrics import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_DPI = 150


class _Look(NamedTuple):
    paper: str
    ink: str
    faint: str


_DARK, _LIGHT = _Look("#0d1117", "#f0f3f6", "#9198a1"), _Look("#ffffff", "#1a1d21", "#5b636d")

# The layout, in inches.
_PANEL = 2.0  # width of an image
_GAP = 0.05  # between images
_MARGIN = 0.12
_HEAD = 0.48  # name and scores above an image
_TITLE = 0.34


def comparison(
    reference: Tensor,
    images: Mapping[str, Tensor],
    path: str | Path | None = None,
    *,
    scores: Mapping[str, Mapping[str, float]] | None = None,
    error_gain: float = 5,
    title: str = "",
    slice: int | None = None,  # noqa: A002
    wrap: int | None = None,
    light: bool = False,
) -> Figure:
    """Draw magnitude images in a row, the reference first, and beneath each its magnified error ||x| − |x₀||.

    All images share one window, from 0 to the 99.5th percentile of |x₀|; the errors' window is ``error_gain`` times
    narrower. Rows are the readout, columns the phase encoding, as stored.

    Parameters
    ----------
    reference
        x₀, (slice, H, W) or (H, W), complex or real.
    images
        Name → x, shaped like the reference.
    path
        Where to save the figure, in the format its suffix names (``.png``, ``.pdf``, ``.svg``); None saves nothing.
    scores
        Name → {"psnr": …, "ssim": …} to print under the name; by default those of the slice shown.
    error_gain
        How much the errors are magnified.
    title
        Printed above all.
    slice
        Which slice to show; the middle one when None.
    wrap
        Images in a row, at the most, besides the reference, which every row has; None puts all into one.
    light
        On white, for paper; on black by default, for screens.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    x0 = _shown("reference", reference, slice)
    xs = {name: _shown(name, image, slice) for name, image in images.items()}
    if not xs:
        raise InputError("images: expected at least one to compare with the reference")
    for name, x in xs.items():
        if x.shape != x0.shape:
            raise InputError(f"{name}: expected the reference's shape {tuple(x0.shape)}, got {tuple(x.shape)}")
    if not error_gain > 0:
        raise InputError(f"error_gain: expected a factor > 0, got {error_gain!r}")
    if scores is None:
        scores = {name: evaluate(x, x0) for name, x in xs.items()}
    top = x0.quantile(0.995).item()

    look = _LIGHT if light else _DARK
    names = list(xs)
    length = len(names) if wrap is None else min(max(1, wrap), len(names))
    bands = [names[i : i + length] for i in range(0, len(names), length)]
    panel = _PANEL * x0.shape[0] / x0.shape[1]
    band = _HEAD + 2 * panel + _GAP
    head = _MARGIN / 2 + (_TITLE if title else 0)
    width = 2 * _MARGIN + (1 + length) * (_PANEL + _GAP) - _GAP
    height = head + len(bands) * band + _MARGIN
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor=look.paper)
    canvas = FigureCanvasAgg(figure)
    if title:
        baseline = 1 - (_MARGIN + _TITLE / 2) / height
        figure.text(_MARGIN / width, baseline, title, color=look.ink, fontsize=12, fontweight="bold", va="center")
    gaps = {"wspace": _GAP / _PANEL, "hspace": _GAP / panel}
    for i, here in enumerate(bands):
        above = head + i * band + _HEAD
        box = {"top": 1 - above / height, "bottom": 1 - (above + 2 * panel + _GAP) / height}
        box |= {"left": _MARGIN / width, "right": 1 - _MARGIN / width}
        rows = figure.subplots(2, 1 + length, squeeze=False, gridspec_kw={**box, **gaps})
        _draw(rows[0, 0], x0, top, "gray")
        _pair(rows[0, 0], look, (0.5, 1), 6, "reference", "")
        for name, (upper, lower) in zip(here, rows.T[1:], strict=False):
            _draw(upper, xs[name], top, "gray")
            _pair(upper, look, (0.5, 1), 6, name, _line(scores.get(name, {})))
            error = _draw(lower, (xs[name] - x0).abs(), top / error_gain, "inferno")
        for axes in rows.T[1 + len(here) :].flat:
            axes.set_axis_off()
        _colour_bar(rows[1, 0], look, error, top, error_gain)

    if path is not None:
        path = Path(path)
        if path.suffix[1:].lower() not in canvas.get_supported_filetypes():
            raise InputError(f"path: expected a .png, .pdf or .svg file, got {path.name!r}")
        figure.savefig(path, dpi=_DPI)
    return figure


def _shown(name: str, image: Tensor, index: int | None) -> Tensor:
    """|image| of one slice, float32 (H, W) on the CPU."""
    image = torch.as_tensor(image).detach().cpu()
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or 0 in image.shape:
        raise InputError(f"{name}: expected (slice, H, W) or (H, W), got {tuple(image.shape)}")
    index = len(image) // 2 if index is None else index
    if not -len(image) <= index < len(image):
        raise InputError(f"slice: expected one of the {len(image)} slices of {name}, got {index}")
    return image[index].abs().float()


def _draw(axes: Axes, values: Tensor, top: float, colours: str) -> AxesImage:
    axes.set_axis_off()
    return axes.imshow(values.numpy(), cmap=colours, vmin=0, vmax=top, interpolation="hanning", aspect="auto")


def _pair(axes: Axes, look: _Look, at: tuple[float, float], raise_by: float, name: str, line: str) -> None:
    """Write a name, and a fainter line under it, centred at a fraction of the axes, raised by some points."""
    for text, offset, colour, size, weight in (
        (name, 14, look.ink, 10.5, "bold"),
        (line, 0, look.faint, 8.5, "normal"),
    ):
        axes.annotate(
            text,
            at,
            (0, raise_by + offset),
            xycoords="axes fraction",
            textcoords="offset points",
            color=colour,
            fontsize=size,
            fontweight=weight,
            ha="center",
        )


def _line(scores: Mapping[str, float]) -> str:
    parts = []
    if "psnr" in scores:
        parts.append(f"{scores['psnr']:.1f} dB")
    if "ssim" in scores:
        parts.append(f"SSIM {scores['ssim']:.3f}")
    return "  ·  ".join(parts)


def _colour_bar(axes: Axes, look: _Look, error: AxesImage, top: float, gain: float) -> None:
    """Fill the place under the reference, which has no error, with the errors' scale."""
    axes.set_axis_off()
    beside = axes.inset_axes((0.88, 0.06, 0.05, 0.88))
    bar = axes.figure.colorbar(error, cax=beside)
    bar.outline.set_visible(False)
    bar.set_ticks([0, top / gain / 2, top / gain], labels=["0", f"{50 / gain:.3g} %", f"{100 / gain:.3g} %"])
    beside.tick_params(left=False, right=False, labelleft=True, labelright=False, labelcolor=look.faint, labelsize=8.5)
    _pair(axes, look, (0.36, 0.5), -11, f"error ×{gain:g}", "in % of white")
