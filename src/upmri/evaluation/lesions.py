"""Synthetic lesions: smooth-edged discs at random places of a simulated scan, which is otherwise unchanged.

A scan with lesions and the same scan without them have the same coils, lines and noise. What a reconstruction shows of
the lesions is the difference of its two images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.simulate import object_support

EDGE = 0.6
"""Standard deviation of the blur of a lesion's edge, in pixels: about that of an image's own point-spread function."""

# Places: half the side of the window that has to be smooth, smallest distance of two lesions, both in pixels.
_REACH, _SPACING = 8, 19
# Depth below the object's outline as a share of the field of view: scalp, skull and cortex are not chosen.
_DEPTH = 0.09
# Mean of the window, as a share of the image's 99.9th percentile, and its deviation, as a share of its mean.
_DARKEST, _ROUGHEST = 0.15, 0.12


@dataclass(frozen=True)
class Lesion:
    """A disc with a smooth edge.

    Parameters
    ----------
    row, column
        Centre in pixels, counted from 0; fractions are allowed.
    diameter
        Diameter of the disc in pixels, before its edge is blurred.
    contrast
        Height relative to the background: 0.3 is 30 % brighter, −0.6 is 60 % darker.
    background
        Magnitude of the image around the centre.
    """

    row: float
    column: float
    diameter: float
    contrast: float
    background: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.diameter) and self.diameter > 0):
            raise InputError(f"expected a diameter > 0, got {self.diameter}", field="diameter")
        if not (math.isfinite(self.contrast) and self.contrast >= -1 and self.contrast != 0):
            raise InputError(f"expected a contrast ≥ −1 other than 0, got {self.contrast}", field="contrast")

    @property
    def amplitude(self) -> float:
        """Height of the disc in units of the image, contrast × background."""
        return self.contrast * self.background


def disc(shape: tuple[int, int], row: float, column: float, diameter: float) -> Tensor:
    """Draw a disc of height 1 with a smooth edge, limited to the frequencies that the matrix holds.

    Its Fourier transform at the matrix's own frequencies k (cycles per pixel), with R = diameter / 2 and σ = ``EDGE``::

        f(k) = R J₁(2π R |k|) / |k| · exp(−2π² σ² |k|²) · exp(−2πi k·centre)

    The sum over all pixels is π R². Far from its edges a large disc is 1; a disc of 2 pixels peaks at 0.75.

    Parameters
    ----------
    shape
        Matrix (H, W).
    row, column, diameter
        As in :class:`Lesion`.

    Returns
    -------
    Tensor
        float64 (H, W).
    """
    radius = diameter / 2
    ky, kx = ((torch.arange(n, dtype=torch.float64) - n // 2) / n for n in shape)
    ky = ky[:, None]
    k = torch.hypot(ky, kx)
    spectrum = radius * torch.special.bessel_j1(2 * math.pi * radius * k) / k
    spectrum[shape[0] // 2, shape[1] // 2] = math.pi * radius**2  # the limit at k = 0
    spectrum = spectrum * torch.exp(-2 * (math.pi * EDGE * k) ** 2)
    shift = -2 * math.pi * (ky * (row - shape[0] // 2) + kx * (column - shape[1] // 2))
    return ifft2c(torch.polar(spectrum.abs(), shift + math.pi * (spectrum < 0))).real / math.sqrt(shape[0] * shape[1])


def smooth_places(magnitude: Tensor, count: int, generator: torch.Generator) -> list[tuple[int, int, float]]:
    """Choose places well inside the object where the image is smooth, in random order.

    A window of 17×17 pixels around a place has a mean above 15 % of the image's 99.9th percentile and a standard
    deviation below 12 % of that mean. A place is at least 9 % of the field of view away from the object's outline along
    rows and columns, and 19 pixels away from every other.

    Parameters
    ----------
    magnitude
        Image without lesions, (H, W).
    count
        Number of places.
    generator
        Random generator for the choice.

    Returns
    -------
    list[tuple[int, int, float]]
        Row, column and background of at most ``count`` places, fewer if the image has no more; the background is the
        mean of the window.
    """
    image = magnitude.double() / torch.quantile(magnitude.double().flatten(), 0.999)
    free = _suitable(image)
    mean = _window_mean(magnitude.double())
    candidates = free.nonzero()
    order = torch.randperm(len(candidates), generator=generator)
    chosen: list[tuple[int, int, float]] = []
    for row, column in candidates[order].tolist():
        if all(math.hypot(row - r, column - c) >= _SPACING for r, c, _ in chosen):
            chosen.append((row, column, mean[row, column].item()))
            if len(chosen) == count:
                break
    return chosen


def with_lesions(scan: Scan, lesions: Sequence[Lesion]) -> Scan:
    """Add lesions to a simulated scan, y + M F S_c Σ a d e^(iφ), with the noise and the lines that it has.

    d is the disc of a lesion, a its amplitude, and φ the phase of the scan's reference, to which the lesions are added,
    too. Where a disc rings below 0 around a dark lesion the magnitude stays ≥ 0.

    Parameters
    ----------
    scan
        One slice with its true maps and its reference, from :func:`upmri.simulate`.
    lesions
        Lesions to add, in the units of the reference.
    """
    if scan.maps is None or scan.reference is None or len(scan) != 1:
        raise InputError("expected one simulated slice with maps and reference", field="scan")
    before = scan.reference[0].abs().double()
    after = before.clone()
    for lesion in lesions:
        after += lesion.amplitude * disc(scan.matrix, lesion.row, lesion.column, lesion.diameter)
    change = (after.clamp_min(0) - before) * (before > 0)  # the reference is 0 outside the object
    added = torch.polar(change.abs(), scan.reference[0].angle().double() + math.pi * (change < 0)).to(torch.complex64)
    kspace = scan.kspace + fft2c(scan.maps * added) * scan.mask[:, None]
    return replace(scan, kspace=kspace, reference=scan.reference + added)


def deep_inside(image: Tensor) -> Tensor:
    """Pixels at least 9 % of the field of view inside the object's outline along rows and columns, bool (H, W)."""
    inside = object_support(image[None].float())
    depth = round(_DEPTH * max(image.shape))
    return avg_pool2d(inside[None].double(), 2 * depth + 1, stride=1, padding=depth)[0, 0] > 1 - 1e-9


def _suitable(image: Tensor) -> Tensor:
    """Pixels that are deep enough in the object and have a smooth, not too dark window around them, bool (H, W)."""
    mean = _window_mean(image)
    deviation = (_window_mean(image**2) - mean**2).clamp_min(0).sqrt()
    return deep_inside(image) & (mean > _DARKEST) & (deviation < _ROUGHEST * mean)


def _window_mean(image: Tensor) -> Tensor:
    """Means over windows of 17×17 pixels, (H, W); windows are cut off at the edge."""
    return avg_pool2d(image[None, None], 2 * _REACH + 1, stride=1, padding=_REACH, count_include_pad=False)[0, 0]
