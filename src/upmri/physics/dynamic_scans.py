"""Simulate a dynamic scan of a series of images: one receive array, one phase, and lines of its own for every frame."""

from __future__ import annotations

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from upmri.core import fields
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.dynamic_masks import Pattern, frame_lines
from upmri.physics.fourier import fft2c
from upmri.physics.masks import generator_of
from upmri.physics.receive_array import Anatomy
from upmri.physics.simulate import coil_maps, complex_normal, normalised, object_support, smooth_phase


def simulate_series(
    image: ArrayLike | Tensor,
    coils: int = 16,
    acceleration: float = 8,
    acs: int = 0,
    noise: float = 0.01,
    seed: int = 0,
    *,
    pattern: Pattern = "variable",
    breathing: float = 0.0,
    anatomy: Anatomy = "torso",
) -> Scan:
    """Simulate the dynamic scan of a series of magnitude images, y_t = M_t (F S_c x_t + e_t) with e_t ~ CN(0, σ₀²).

    x_t is the image over the 99.9th percentile of all frames, times one smooth random phase. The maps S_c are the same
    for all frames, with Σ|S_c|² = 1 where any frame has the object.

    Parameters
    ----------
    image
        Magnitude (frame, H, W); W is the phase-encoding direction.
    coils, noise, anatomy
        As in :func:`upmri.simulate`.
    acceleration, acs, pattern
        R, calibration lines and kind of the lines of each frame: see :func:`upmri.physics.frame_lines`.
    seed
        Random seed for array, phase, lines, noise and breathing.
    breathing
        Largest shift of the object along the readout, in pixels: a sine with about one period in all frames.

    Returns
    -------
    Scan
        With ``maps``, ``reference`` and ``noise``; the slices are frames, ``meta["axes"]`` is ``{"phase": frames}``.

    Examples
    --------
    >>> import numpy as np
    >>> from upmri.physics import simulate_series
    >>> beats = np.zeros((6, 48, 48))
    >>> for t in range(6):
    ...     beats[t, 8:40, 12 : 30 + t] = 1
    >>> scan = simulate_series(beats, coils=4, acceleration=4)
    >>> scan.meta["axes"], scan.kspace.shape
    ({'phase': 6}, torch.Size([6, 4, 48, 48]))
    """
    noise = fields.amount("noise", noise, "a finite σ₀ ≥ 0")
    x, _ = normalised(image)
    if x.is_complex():
        raise InputError("expected magnitudes, got complex values", field="image")
    frames, h, w = x.shape
    generator = generator_of(seed)
    if breathing:
        x = shifted(x, breathing * breath(frames, generator))
    support = object_support(x.amax(0)[None])
    maps = coil_maps(support, coils, generator, anatomy=anatomy)[0]
    angle = smooth_phase((h, w), generator)
    x = (x * support * torch.polar(torch.ones_like(angle), angle)).to(torch.complex64)
    mask = frame_lines(pattern, frames, w, acceleration, acs, seed=generator)
    settings = {
        "coils": int(coils), "acceleration": float(acceleration), "acs": int(acs), "noise": noise,
        "seed": int(seed), "anatomy": anatomy, "pattern": pattern, "breathing": float(breathing),
    }  # fmt: skip
    return Scan(
        kspace=acquire(x, maps, mask, noise, generator),
        mask=mask,
        maps=maps.expand(frames, -1, -1, -1),
        reference=x,
        noise=noise,
        name="simulated",
        meta={"simulated": settings, "axes": {"phase": frames}},
    )


def acquire(frames: Tensor, maps: Tensor, mask: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Return M_t (F S_c x_t + e_t), (frame, coil, H, W), on the device of the images.

    Parameters
    ----------
    frames, maps
        Images x_t, complex (frame, H, W), and coil maps, (coil, H, W).
    mask
        Lines, bool (frame, 1, W).
    sigma, generator
        σ₀, and the random generator for the noise, on the same device.
    """
    kspace = fft2c(maps * frames[:, None])
    if sigma:
        kspace = kspace + complex_normal(kspace.shape, generator, sigma=sigma)
    return kspace * mask[:, None]


def breath(frames: int, generator: torch.Generator) -> Tensor:
    """Draw the course of a breath, (frame,), in [−1, 1]: a sine of 0.3 to 1.7 periods, not periodic over the frames."""
    periods, start = torch.rand(2, generator=generator, dtype=torch.float32).tolist()
    time = torch.arange(frames) / frames
    return torch.sin(2 * math.pi * ((0.3 + 1.4 * periods) * time + start))


def shifted(image: Tensor, pixels: Tensor) -> Tensor:
    """Shift magnitudes (frame, H, W) along H by any number of pixels, (frame,), by a ramp in k-space; no value < 0."""
    frequency = torch.fft.rfftfreq(image.shape[-2], device=image.device)[:, None]
    ramp = torch.exp(-2j * math.pi * frequency * pixels.to(image)[:, None, None])
    spectrum = torch.fft.rfft(image, dim=-2) * ramp
    return torch.fft.irfft(spectrum, n=image.shape[-2], dim=-2).clamp_min(0)
