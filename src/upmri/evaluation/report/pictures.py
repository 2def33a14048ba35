"""What a page draws: images with what belongs to them, and what a scan measured."""

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

from upmri.cli.console import plain
from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction, Scan
from upmri.evaluation import metrics
from upmri.evaluation.report.encode import Stack, quantise
from upmri.formats.source import SliceSelection, select_slices
from upmri.physics.fourier import fft2c

Pairs = list[tuple[str, str]]

_WHITE = 0.995  # quantile of |x| that the first window shows as white, as in the figures
_SIGNAL = 0.01  # of white; below it a phase is noise, and is not kept
_DECADES = 6.0  # of k-space below its peak that are kept


@dataclass(frozen=True, eq=False)
class Picture:
    """One thing to look at: an image with what belongs to it.

    ``samples`` are differences of magnitudes from ``magnitude``, which are smaller numbers than the magnitudes.
    """

    name: str
    is_reference: bool
    magnitude: Stack
    phase: Callable[[], Stack] | None = None
    std: Stack | None = None
    samples: Callable[[int], Stack] | None = None
    count: int = 0
    kspace: Callable[[], Stack] | None = None
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    details: Pairs = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a scan measured: the k-space of all coils together, in decades, and which points."""

    kspace: Stack
    mask: Stack
    facts: Pairs


def magnitude_of(image: Tensor) -> NDArray[np.float64]:
    """|image| in double precision, in which no single-precision image is too large."""
    return image.to(torch.complex128).abs().numpy()


def white_of(magnitude: NDArray[Any]) -> float:
    """Where the first window ends: a high quantile of the slice that has the highest."""
    white = max(float(np.quantile(plane, _WHITE)) for plane in magnitude)
    return white or float(magnitude.max()) or 1.0


def draw_image(name: str, image: Tensor, white: float, *, is_reference: bool = False, **more: Any) -> Picture:
    """An image, with its phase where it has one; ``more`` is for the other fields."""

    def phase() -> Stack:
        # Code 0 is "no phase here"; the 254 steps between codes 1 and 255 are the circle.
        angle = quantise(np.angle(image.numpy()), step=2 * math.pi / 254, offset=-math.pi - 2 * math.pi / 254, bits=8)
        return _where(magnitude_of(image) > _SIGNAL * white, angle)

    return Picture(
        name=name,
        is_reference=is_reference,
        magnitude=quantise(magnitude_of(image)),
        phase=phase if bool((image.imag != 0).any()) else None,
        kspace=lambda: _decades(magnitude_of(fft2c(image.to(torch.complex128))), bits=8),
        **more,
    )


def draw_result(label: str, rec: Reconstruction, reference: Tensor | None, white: float, details: Pairs) -> Picture:
    """A result, with its deviation, its samples, and its measures against the reference."""

    def sample(index: int) -> Stack:
        assert rec.samples is not None  # noqa: S101  asked for only when there are some
        # 10 bits: these are for a film, on screens that show 8, and with 16 they would be most of the page.
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
        details=details,
    )


def _scores(image: Tensor, reference: Tensor) -> dict[str, list[float | None]]:
    """PSNR, SSIM and NMSE of each slice; None where there is no finite one."""
    return {
        measure.__name__: [_score(measure, x, x0) for x, x0 in zip(image, reference, strict=True)]
        for measure in (metrics.psnr, metrics.ssim, metrics.nmse)
    }


def _score(measure: Callable[..., Tensor], image: Tensor, reference: Tensor) -> float | None:
    try:
        value = measure(image, reference).item()
    except InputError:  # nothing there to compare with, or fewer pixels than a window has
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else None


def draw_scan(
    scan: Scan | str | Path, slices: SliceSelection, shape: tuple[int, int, int]
) -> tuple[Measured, Tensor | None]:
    """What a scan measured, slice by slice, and its reference; a scan of another size is refused."""
    from upmri.formats import open_source

    if isinstance(scan, Scan):
        wanted = select_slices(slices, len(scan))
        return _sampled(plain(scan.name) or "scan", len(wanted), scan.matrix, (scan[i] for i in wanted), shape)
    with open_source(scan) as source:
        count = len(source.indices(slices))
        return _sampled(plain(Path(scan).name), count, source.matrix, source.each(slices), shape)


def _sampled(
    name: str, slices: int, matrix: tuple[int, int], each: Iterable[Scan], shape: tuple[int, int, int]
) -> tuple[Measured, Tensor | None]:
    if (slices, *matrix) != shape:
        raise InputError(
            f"{name}: has {times((slices, *matrix))} (slices, readout, phase), the results {times(shape)}; "
            "expected the scan they were made of"
        )
    power, masks, references = [], [], []
    coils, noise = 0, None
    for part in each:
        coils, noise = part.coils, part.noise
        power.append(part.kspace.to(torch.complex128).abs().square().sum(1).sqrt())
        masks.append(part.mask.expand(-1, matrix[0], -1))
        references += [] if part.reference is None else [part.reference]
    mask = torch.cat(masks)
    facts = [("coils", str(coils)), ("acceleration", f"{1 / mask.float().mean().item():.3g}×")]
    facts += [] if noise is None else [("noise σ₀", f"{noise:.3g}")]
    found = Measured(_decades(torch.cat(power).numpy(), bits=16), Stack(mask.numpy().astype(np.uint8), 1.0), facts)
    return found, torch.cat(references) if len(references) == slices else None


def _decades(magnitude: NDArray[Any], *, bits: int) -> Stack:
    """log₁₀ of k-space relative to its peak, down to so many decades; code 0 is "nothing"."""
    peak = float(magnitude.max()) or 1.0
    step = _DECADES / (2**bits - 2)
    with np.errstate(divide="ignore"):
        decades = np.log10(magnitude.astype(np.float64) / peak)
    stack = quantise(np.maximum(decades, -_DECADES), step=step, offset=-_DECADES - step, bits=bits)
    return _where(magnitude > 0, stack)


def _where(there: NDArray[np.bool_], stack: Stack) -> Stack:
    """Code 0 wherever there is nothing."""
    codes = stack.codes.copy()
    codes[~there] = 0
    return Stack(codes, stack.step, stack.offset)


def times(numbers: Iterable[float]) -> str:
    """3 × 24 × 40."""
    return " × ".join(f"{number:g}" for number in numbers)
