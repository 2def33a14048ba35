"""Figures of reconstructions beside the reference.

Only matplotlib's object interface is used: no pyplot, no window, no state shared with the caller's own figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.evaluation.metrics import evaluate
from upmri.formats import atomic
from upmri.physics.fourier import fft2c

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
_NOTE = 0.24  # the note above the row of k-space
# Size of names in points, and the width of a bold letter relative to it: names longer than an image are smaller.
_NAME, _LETTER = 10.5, 0.68

# dB of the peak; k-space below it is always black.
_DEEPEST = -120


def comparison(
    reference: Tensor,
    images: Mapping[str, Tensor],
    path: str | Path | None = None,
    *,
    scores: Mapping[str, Mapping[str, float]] | None = None,
    error_gain: float = 5,
    title: str = "",
    note: str = "",
    slice: int | None = None,  # noqa: A002
    wrap: int | None = None,
    light: bool = False,
    kspace: bool = False,
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
        File to write, in the format of its suffix (``.png``, ``.pdf``, ``.svg``); an existing file is replaced. None
        saves nothing.
    scores
        Name → {"psnr": …, "ssim": …}, printed under the name; by default the scores of the slice shown.
    error_gain
        Factor by which the errors are magnified.
    title, note
        Text above the figure, and text below it.
    slice
        Index of the slice to show; the middle one when None.
    wrap
        Most images in a row, not counting the reference, which every row shows; None puts all in one row.
    light
        White background, for paper; by default black, for screens.
    kspace
        Add a row with the k-space of each image, log |F x|: it shows which lines were filled in. All share one window,
        from the 1st to the 99.9th percentile of log |F x₀|. If one image is real, the k-space of all magnitudes is
        shown, which is symmetric and does not show the measured lines. A note above the row states which it is.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    x0 = _one_slice("reference", reference, slice)
    xs = {name: _one_slice(f"images.{name}", image, slice) for name, image in images.items()}
    _check(x0, xs, error_gain)
    if scores is None:
        scores = {name: evaluate(x, x0) for name, x in xs.items()}

    look = _LIGHT if light else _DARK
    names = list(xs)
    length = len(names) if wrap is None else -(-len(names) // -(-len(names) // max(1, wrap)))  # rows of equal length
    bands = [names[i : i + length] for i in range(0, len(names), length)]
    panel = _PANEL * x0.shape[0] / x0.shape[1]
    band = _HEAD + 2 * panel + _GAP + (_NOTE + panel if kspace else 0)
    head = _MARGIN / 2 + (_TITLE if title else 0)
    width = 2 * _MARGIN + (1 + length) * (_PANEL + _GAP) - _GAP
    height = head + len(bands) * band + _MARGIN + (_TITLE if note else 0)
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor=look.paper)
    canvas = FigureCanvasAgg(figure)
    if title:
        baseline = 1 - (_MARGIN + _TITLE / 2) / height
        figure.text(_MARGIN / width, baseline, title, color=look.ink, fontsize=12, fontweight="bold", va="center")
    if note:
        figure.text(_MARGIN / width, _TITLE / 2 / height, note, color=look.ink, fontsize=10.5, va="center")
    spectra = _Spectra.of(x0, xs) if kspace else None
    for i, here in enumerate(bands):
        above = head + i * band + _HEAD
        rows = [_row(figure, 1 + length, panel, above + j * (panel + _GAP)) for j in range(2)]
        _draw_images(rows, x0, {name: xs[name] for name in here}, scores, error_gain, look)
        if spectra is not None:
            below = _row(figure, 1 + length, panel, above + 2 * panel + _GAP + _NOTE)
            _draw_spectra(below, spectra, here, look)

    if path is not None:
        path = Path(path)
        if path.suffix[1:].lower() not in canvas.get_supported_filetypes():
            raise InputError(f"expected a .png, .pdf or .svg file, got {path.name!r}", field="path")
        with atomic.staged(path, overwrite=True) as stage:
            figure.savefig(stage, dpi=_DPI)
    return figure


class _Spectra(NamedTuple):
    """k-space to draw: log |F x| in dB relative to the reference's peak, the window, and the note above the row."""

    reference: Tensor
    images: dict[str, Tensor]
    window: tuple[float, float]
    note: str

    @classmethod
    def of(cls, x0: Tensor, xs: Mapping[str, Tensor]) -> _Spectra:
        whole = all(x.is_complex() for x in (x0, *xs.values()))
        y0, *ys = (fft2c(x if whole else x.abs()).abs() for x in (x0, *xs.values()))
        peak = y0.max().clamp_min(1e-30)  # 0 for a blank slice
        floor = peak * 10 ** (_DEEPEST / 20)
        first, *rest = (20 * (y.clamp_min(floor) / peak).log10() for y in (y0, *ys))
        low, high = first.quantile(0.01).item(), first.quantile(0.999).item()
        note = f"k-space of {'the complex' if whole else 'magnitude'} images, log scale over {high - low:.0f} dB"
        return cls(first, dict(zip(xs, rest, strict=True)), (low, high), note)


def _check(x0: Tensor, xs: Mapping[str, Tensor], error_gain: float) -> None:
    if not xs:
        raise InputError("expected at least one to compare with the reference", field="images")
    for name, x in xs.items():
        if x.shape != x0.shape:
            raise InputError(
                f"expected the reference's shape {tuple(x0.shape)}, got {tuple(x.shape)}", field=f"images.{name}"
            )
    if not error_gain > 0:
        raise InputError(f"expected a factor > 0, got {error_gain!r}", field="error_gain")


def _one_slice(field: str, image: Tensor, index: int | None) -> Tensor:
    """Return one slice of an image, (H, W) in single precision on the CPU."""
    image = torch.as_tensor(image).detach().cpu()
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or 0 in image.shape:
        raise InputError(f"expected (slice, H, W) or (H, W), got {tuple(image.shape)}", field=field)
    index = len(image) // 2 if index is None else index
    if not -len(image) <= index < len(image):
        raise InputError(f"expected one of the {len(image)} slices of {field}, got {index}", field="slice")
    return image[index].to(torch.complex64 if image.is_complex() else torch.float32)


def _row(figure: Figure, columns: int, panel: float, above: float) -> Any:
    """Return the axes of a row of panels of height ``panel``, ``above`` inches below the figure's upper edge."""
    width, height = figure.get_size_inches()
    box = {"left": _MARGIN / width, "right": 1 - _MARGIN / width}
    box |= {"top": 1 - above / height, "bottom": 1 - (above + panel) / height, "wspace": _GAP / _PANEL}
    row = figure.subplots(1, columns, squeeze=False, gridspec_kw=box)[0]
    for axes in row:
        axes.set_axis_off()
    return row


def _draw_images(
    rows: Sequence[Any],
    x0: Tensor,
    xs: Mapping[str, Tensor],
    scores: Mapping[str, Mapping[str, float]],
    gain: float,
    look: _Look,
) -> None:
    """Fill two rows: magnitudes above, errors below."""
    (first, *images), (beneath, *errors) = rows
    top = x0.abs().quantile(0.995).item()
    _draw(first, x0.abs(), (0, top), "gray")
    _pair(first, look, (0.5, 1), 6, "reference", "")
    for (name, x), upper, lower in zip(xs.items(), images, errors, strict=False):
        _draw(upper, x.abs(), (0, top), "gray")
        _pair(upper, look, (0.5, 1), 6, name, _line(scores.get(name, {})))
        error = _draw(lower, (x.abs() - x0.abs()).abs(), (0, top / gain), "inferno")
    _colour_bar(beneath, look, error, top, gain)


def _draw_spectra(row: Sequence[Any], spectra: _Spectra, names: Sequence[str], look: _Look) -> None:
    """Fill a row with k-space, that of the reference first, and write the note above it."""
    for axes, values in zip(row, (spectra.reference, *(spectra.images[name] for name in names)), strict=False):
        _draw(axes, values, spectra.window, "gray")
    place = {"xycoords": "axes fraction", "textcoords": "offset points"}
    row[0].annotate(spectra.note, (0, 1), (0, 5), color=look.faint, fontsize=8.5, **place)


def _draw(axes: Axes, values: Tensor, window: tuple[float, float], colours: str) -> AxesImage:
    low, high = window
    return axes.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high, interpolation="hanning", aspect="auto")


def _pair(axes: Axes, look: _Look, at: tuple[float, float], raise_by: float, name: str, line: str) -> None:
    """Write a name and a fainter line under it, centred at a fraction of the axes and raised by some points."""
    fitting = min(_NAME, 72 * _PANEL / (_LETTER * max(1, len(name))))
    for text, offset, colour, size, weight in (
        (name, 14, look.ink, fitting, "bold"),
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
    """Draw the colour bar of the errors under the reference, which has no error."""
    beside = axes.inset_axes((0.88, 0.06, 0.05, 0.88))
    bar = axes.figure.colorbar(error, cax=beside)
    bar.outline.set_visible(False)
    bar.set_ticks([0, top / gain / 2, top / gain], labels=["0", f"{50 / gain:.3g} %", f"{100 / gain:.3g} %"])
    beside.tick_params(left=False, right=False, labelleft=True, labelright=False, labelcolor=look.faint, labelsize=8.5)
    _pair(axes, look, (0.36, 0.5), -11, f"error ×{gain:g}", "in % of white")
