"""Other contrasts and phases of the same anatomy, so that a prior is trained for scans of many kinds.

Real scans differ from anatomies with a smooth phase most of all in their phase: gradient echoes carry the field of
air-filled cavities, several turns of it within a few centimetres, and each tissue has a phase of its own. A prior that
was trained without such a phase treats it as an artefact. The fat of the scalp has another phase, too, and is shifted;
where it meets water, or air, the edge rings with alternating sign, which images of positive magnitudes never do.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.simulate import smooth_phase

# Grey values, as shares of the 99.9th percentile, between which a new contrast is drawn. Values below the first are
# air or noise, and stay dark.
_KNOTS = (0.1, 0.25, 0.45, 0.7, 1.0)
# Deviations: of the shading (log), of the smooth phase and the tissues' (rad), of the ramp (cycles over the image).
_SHADING, _SMOOTH, _TISSUE, _RAMP = 0.3, 1.0, 0.4, 0.5
# Sources of the field: largest number, strength (rad), and range of widths (shares of the field of view).
_SOURCES, _STRENGTH, _WIDTHS = 3, 9.0, (0.04, 0.15)
# The layer of fat: its thickness and what closes the gaps below it, skull for one (shares of the field of view), how
# bright it is beside what was there, its shift along the readout (pixels), and its phase's deviation from a constant.
_THICKNESS, _GAP, _BRIGHTNESS, _SHIFT, _OWN = (0.015, 0.07), 0.08, (0.3, 1.3), 2.0, 0.7


def vary(image: NDArray[np.floating] | Tensor, generator: torch.Generator) -> Tensor:
    """Give a magnitude image another contrast, a shading, and a phase like that of a gradient echo.

    Grey values g go to α g + (1−α) f(g), f piecewise linear through f(0) = 0, f(0.1) = 0.1 and random values at the
    knots above, not necessarily rising; α is drawn evenly from [0, 1]. The magnitude is multiplied by exp(s), s a
    smooth random field. The phase is a smooth one, plus a ramp (an echo off centre), plus A w²/(r² + w²) around some
    random places (fields of cavities), plus a random function of the grey value (tissues).

    Parameters
    ----------
    image
        Magnitude, (H, W).
    generator
        Random generator for contrast, shading and phase.

    Returns
    -------
    Tensor
        Complex64 (H, W), in units of the 99.9th percentile.
    """
    grey = torch.from_numpy(np.array(np.asarray(image), dtype=np.float32))
    grey = grey / torch.quantile(grey.flatten(), 0.999).clamp_min(torch.finfo(torch.float32).tiny)
    alpha = torch.rand((), generator=generator)
    magnitude = alpha * grey + (1 - alpha) * _curve(grey, generator)
    field = smooth_phase(tuple(grey.shape), generator, order=2, deviation=_SHADING)
    magnitude = magnitude * torch.exp(field - field.mean())  # the mean is a constant that has no meaning here
    tissue = _TISSUE * torch.randn((), generator=generator) * _curve(grey, generator)
    return torch.polar(magnitude, _field(tuple(grey.shape), generator) + tissue)


def with_fat(image: Tensor, generator: torch.Generator) -> Tensor:
    """Turn the outermost layer of an object to fat: a phase of its own, shifted a little along the readout.

    x = water + a e^(iψ) fat(· − d), made on a grid twice as fine and then cut in k-space to the size of the matrix, as
    a scanner cuts: edges ring, and voxels that hold both lose signal where the two are out of phase.

    Parameters
    ----------
    image
        Complex (H, W).
    generator
        Random generator for the thickness of the layer, a, d and the field ψ.

    Returns
    -------
    Tensor
        Complex64 (H, W).
    """
    height, width = image.shape
    low, high = _THICKNESS
    thickness = low + (high - low) * float(torch.rand((), generator=generator))
    brightness = _BRIGHTNESS[0] + (_BRIGHTNESS[1] - _BRIGHTNESS[0]) * float(torch.rand((), generator=generator))
    shift = round(2 * _SHIFT * (2 * float(torch.rand((), generator=generator)) - 1))
    phase = smooth_phase((2 * height, 2 * width), generator, order=4, deviation=_OWN)
    margin = (width - width // 2, width // 2, height - height // 2, height // 2)  # keeps the centre, 2n//2 = n
    fine = 2 * ifft2c(pad(fft2c(image), margin))
    grey = fine.abs()
    layer = _outermost(grey > _KNOTS[0] * grey.max(), thickness)
    fat = torch.polar(brightness * layer.float(), phase) * fine
    mixed = fine * ~layer + fat.roll(shift, 0)
    rows, columns = (slice(n - n // 2, n - n // 2 + n) for n in (height, width))
    return 0.5 * ifft2c(fft2c(mixed)[rows, columns])


def _outermost(inside: Tensor, thickness: float) -> Tensor:
    """The layer between the outline of an object, gaps closed, and the same outline further in."""
    extent = max(inside.shape)
    gap, depth = max(1, round(_GAP * extent)), max(1, round(thickness * extent))
    filled = -_spread(-_spread(inside.float(), gap), gap)
    return (filled > 0) & (-_spread(-filled, depth) < 1)


def _spread(image: Tensor, radius: int) -> Tensor:
    """Largest value within a radius along each axis; the image is 0 beyond its edge."""
    wide = pad(image[None, None], (radius,) * 4)
    wide = max_pool2d(wide, (2 * radius + 1, 1), 1)
    return max_pool2d(wide, (1, 2 * radius + 1), 1)[0, 0]


def _curve(grey: Tensor, generator: torch.Generator) -> Tensor:
    """A random contrast."""
    values = 0.15 + 0.85 * torch.rand(len(_KNOTS), generator=generator)
    values[0] = _KNOTS[0]
    return torch.from_numpy(np.interp(grey.clamp(max=1).numpy(), (0.0, *_KNOTS), (0.0, *values.tolist()))).float()


def _field(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A random phase that does not depend on the object."""
    y, x = (torch.linspace(-0.5, 0.5, length) for length in shape)
    y = y[:, None]
    phase = smooth_phase(shape, generator, deviation=_SMOOTH * (0.5 + float(torch.rand((), generator=generator))))
    ramp = 2 * math.pi * _RAMP * torch.randn(2, generator=generator)
    phase = phase + ramp[0] * y + ramp[1] * x
    for _ in range(int(torch.randint(_SOURCES + 1, (), generator=generator))):
        place = 0.9 * (torch.rand(2, generator=generator) - 0.5)
        width = _WIDTHS[0] + (_WIDTHS[1] - _WIDTHS[0]) * torch.rand((), generator=generator)
        strength = _STRENGTH * (2 * torch.rand((), generator=generator) - 1)
        distance = (y - place[0]) ** 2 + (x - place[1]) ** 2
        phase = phase + strength * width**2 / (distance + width**2)
    return phase
