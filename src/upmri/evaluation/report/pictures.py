"""What a page draws of images and of measured k-space: magnitude, phase, samples and scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction, Scan
from upmri.evaluation import metrics
from upmri.evaluation.report.coil_views import Coils, shown_slices, view_coils
from upmri.evaluation.report.encode import Planes, angles, quantise
from upmri.formats.source import SliceSelection, select_slices
from upmri.physics.fourier import fft2c

Pairs = list[tuple[str, str]]

_WHITE = 0.995  # quantile of |x| that is white in the first window, as in the figures
_SIGNAL = 0.01  # fraction of white; below it the phase is noise and is not shown
_DECADES = 6.0  # decades of k-space below its peak that are kept


@dataclass(frozen=True, eq=False)
class Picture:
    """One image with all arrays that a page can show of it.

    ``samples`` are differences from ``magnitude``, which are smaller numbers than the magnitudes of the samples.
    """

    name: str
    is_reference: bool
    magnitude: Planes
    phase: Callable[[], Planes] | None = None
    std: Planes | None = None
    samples: Callable[[int], Planes] | None = None
    count: int = 0
    kspace: Callable[[], Planes] | None = None
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    details: Pairs = field(default_factory=list)
    statements: Pairs = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Measured:
    """The measured k-space of a scan, root sum of squares of all coils in decades, its mask, and its coils."""

    kspace: Planes
    mask: Planes
    facts: Pairs
    coils: Coils


def magnitude_of(image: Tensor) -> NDArray[np.float64]:
    """Return |image| in double precision, where the squares of large float32 values do not overflow."""
    return image.to(torch.complex128).abs().numpy()


def white_of(magnitude: NDArray[Any]) -> float:
    """Return the upper end of the first window: the largest of the slices' 99.5th percentiles."""
    white = max(float(np.quantile(plane, _WHITE)) for plane in magnitude)
    return white or float(magnitude.max()) or 1.0


def draw_image(name: str, image: Tensor, white: float, *, is_reference: bool = False, **more: Any) -> Picture:
    """Return the picture of an image, with its phase if it has one; ``more`` sets the other fields."""

    def phase() -> Planes:
        return angles(image.numpy(), magnitude_of(image) > _SIGNAL * white)

    return Picture(
        name=name,
        is_reference=is_reference,
        magnitude=quantise(magnitude_of(image)),
        phase=phase if bool((image.imag != 0).any()) else None,
        kspace=lambda: _decades(magnitude_of(fft2c(image.to(torch.complex128))), bits=8),
        **more,
    )


def draw_result(label: str, rec: Reconstruction, reference: Tensor | None, white: float, **text: Any) -> Picture:
    """Return the picture of a result, with its standard deviation, its samples and its scores; ``text`` is about it."""

    def sample(index: int) -> Planes:
        assert rec.samples is not None  # noqa: S101  called only if there are samples
        # 10 bits are enough for a film on screens that show 8; with 16, samples would be most of the page.
        change = magnitude_of(rec.samples[index]) - magnitude
        step = (float(magnitude.max()) or float(np.abs(change).max()) or 1.0) / 1023
        return quantise(change, step=step, offset=step * math.floor(float(change.min()) / step))

    magnitude = magnitude_of(rec.image)
    return draw_image(
        label,
        rec.image,
        white,
        std=None if rec.std is None else quantise(rec.std.numpy()),
        samples=None if rec.samples is None else sample,
        count=0 if rec.samples is None else len(rec.samples),
        scores={} if reference is None else _scores(rec.image, reference),
        **text,
    )


def _scores(image: Tensor, reference: Tensor) -> dict[str, list[float | None]]:
    """Return PSNR, SSIM and NMSE of each slice; None where the value is not finite or not defined."""
    return {
        metric.__name__: [_score(metric, x, x0) for x, x0 in zip(image, reference, strict=True)]
        for metric in (metrics.psnr, metrics.ssim, metrics.nmse)
    }


def _score(metric: Callable[..., Tensor], image: Tensor, reference: Tensor) -> float | None:
    try:
        value = metric(image, reference).item()
    except InputError:  # the reference is 0, or the image is smaller than a window
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else None


def draw_scan(
    scan: Scan | str | Path, slices: SliceSelection, shape: tuple[int, int, int], axes: str | None = None
) -> tuple[Measured, Tensor | None]:
    """Return the measured k-space of a scan, read slice by slice, and its reference; an error if its size differs."""
    from upmri.formats import open_source

    if isinstance(scan, Scan):
        wanted = select_slices(slices, len(scan))
        return _sampled(len(wanted), scan.matrix, (scan[i] for i in wanted), shape)
    with open_source(scan, axes=axes) as source:
        count = len(source.indices(slices))
        try:
            return _sampled(count, source.matrix, source.each(slices), shape)
        except InputError as error:
            raise error.within(path=scan) from error


def _sampled(
    slices: int, matrix: tuple[int, int], each: Iterable[Scan], shape: tuple[int, int, int]
) -> tuple[Measured, Tensor | None]:
    if (slices, *matrix) != shape:
        raise InputError(
            f"has {times((slices, *matrix))} (slices, readout, phase), the results {times(shape)}; "
            "expected the scan they were reconstructed from",
            field="scan",
        )
    power, masks, references = [], [], []
    coils, noise, chosen = 0, None, {}
    wanted = shown_slices(slices)
    for index, part in enumerate(each):
        if index in wanted:
            chosen[index] = part
        coils, noise = part.coils, part.noise
        power.append(part.kspace.to(torch.complex128).abs().square().sum(1).sqrt())
        masks.append(part.mask.expand(-1, matrix[0], -1))
        references += [] if part.reference is None else [part.reference]
    mask = torch.cat(masks)
    facts = [("coils", str(coils)), ("acceleration", f"{1 / mask.float().mean().item():.3g}×")]
    facts += [] if noise is None else [("noise σ₀", f"{noise:.3g}")]
    measured = _decades(torch.cat(power).numpy(), bits=16)
    found = Measured(measured, Planes(mask.numpy().astype(np.uint8), 1.0), facts, view_coils(chosen))
    return found, torch.cat(references) if len(references) == slices else None


def _decades(magnitude: NDArray[Any], *, bits: int) -> Planes:
    """Return log₁₀ of k-space relative to its peak, down to ``_DECADES``; code 0 means "no signal"."""
    peak = float(magnitude.max()) or 1.0
    step = _DECADES / (2**bits - 2)
    with np.errstate(divide="ignore"):
        decades = np.log10(magnitude.astype(np.float64) / peak)
    planes = quantise(np.maximum(decades, -_DECADES), step=step, offset=-_DECADES - step, bits=bits)
    return planes.where(magnitude > 0)


def times(numbers: Iterable[float]) -> str:
    """Return numbers as text such as "3 × 24 × 40"."""
    return " × ".join(f"{number:g}" for number in numbers)
