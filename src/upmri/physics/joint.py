"""Coil maps without calibration lines: joint estimation of image and maps from the centre of undersampled k-space.

NLINV alone cannot distinguish an object from its copy shifted by half a field of view when every second line is
sampled: neither the model nor its start u₀ = 1 prefers one of them, and both are mixed. A window v that expects the
object in the middle of the field of view decides it. Then the object itself, found in the first image, is the window.
The first inversions allow rough coils, which leads them to the right solution. The next one, which begins there, makes
the coils smooth, so that no copy of the object remains mixed in; the last one adds what is less smooth.

The object is where these images stand out from the air and where ESPIRiT, on calibration lines predicted with them,
finds a signal. The maps are those of ESPIRiT on lines predicted inside of it: they reach to the edge of the object,
which images with few coils show too narrow. What every second line leaves of the copy in them is removed last
(:mod:`upmri.physics.copies`). The settings were chosen on simulated validation scans (heads without and
with skull, 7 to 16 coils, σ₀ from 0.003 to 0.03, every second line and as many random ones).
"""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.copies import every_second, remove_copy
from upmri.physics.espirit import espirit
from upmri.physics.fourier import fft2c, middle
from upmri.physics.nlinv import Nlinv, Solution
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import object_support
from upmri.physics.tensors import near_peak

# Samples used in each direction: coils are smooth, so that outer samples show little but noise.
RESOLUTION = 96
# Inversions from u₀, each with the object that the one before found; and those that begin where they end.
_SEARCH = (Nlinv(),) * 3
_FINISH = (Nlinv(steps=10, alpha=2**-5, width=2.5), Nlinv(steps=4, alpha=2**-12))
# Half the width of the first window, exp(−|r/width|⁴), in fields of view.
_WINDOW = 0.35
# Least share of the energy within a quarter of the matrix around DC; white noise has 1/4.
_CENTRE = 0.5
# λ of the image that shows where the object is, and of the image that predicts calibration lines, which is done twice.
_DAMPING, _PREDICTION, _ROUNDS = 0.01, 1e-3, 2
_CALIBRATION = 24


def joint_estimate(kspace: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Coil maps from all samples near DC, and the share of the copy that was removed from them last.

    The object is assumed to be in the middle of the field of view.

    Parameters
    ----------
    kspace
        (slice, coil, H, W), on any device; unsampled entries are 0.
    mask
        Sampled positions, bool (slice, 1 or H, W). Every slice has some.

    Returns
    -------
    tuple[Tensor, Tensor]
        Maps (slice, coil, H, W), Σ|S_c|² = 1 in the object and 0 outside, and shares (slice,), 0 where no copy is
        looked for; see :func:`upmri.physics.copies.remove_copy`.
    """
    _check(kspace)
    shape: tuple[int, int] = (kspace.shape[-2], kspace.shape[-1])
    low, sampled = (middle(part, RESOLUTION, RESOLUTION) for part in (kspace, mask.to(kspace.device)))
    small: tuple[int, int] = (low.shape[-2], low.shape[-1])
    window = _first_window(low, lines=mask.shape[-2] == 1)
    found: Solution | None = None
    for invert in _SEARCH:
        found = invert(low, sampled, window)
        window = _object(found.image * _length(found.coils(small))[:, 0]).to(low.real)
    for invert in _FINISH:
        found = invert(low, sampled, window, begin=found)
        window = _object(found.image * _length(found.coils(small))[:, 0]).to(low.real)
    assert found is not None  # noqa: S101
    coils = _unit(found.coils(small))
    inside = window.bool() & _object(_image(low, sampled, coils, _DAMPING)).to(low.device)
    for _ in range(_ROUNDS):
        lines = _calibration(low, sampled, coils * inside[:, None])
        inside = inside & (espirit(lines, small) != 0).any(1)
    maps = espirit(_calibration(low, sampled, coils * inside[:, None]), shape)
    regular = torch.tensor([every_second(lines) for lines in mask.cpu()])
    shares = torch.zeros(len(maps), dtype=maps.real.dtype, device=maps.device)
    if bool(regular.any()):
        maps[regular], shares[regular] = remove_copy(kspace[regular], mask[regular].to(kspace.device), maps[regular])
    return maps, shares


def _image(kspace: Tensor, mask: Tensor, maps: Tensor, damping: float) -> Tensor:
    """SENSE image; less noisy than that of the inversion."""
    operator = SenseOperator(maps, mask)
    return operator.solve(operator.adjoint(kspace), damping)


def _calibration(kspace: Tensor, mask: Tensor, maps: Tensor) -> Tensor:
    """Calibration lines (slice, coil, H, W): the acquired ones, and the missing ones as the maps predict them."""
    predicted = fft2c(maps * _image(kspace, mask, maps, _PREDICTION)[:, None])
    return middle(torch.where(mask[:, None], kspace, predicted), _CALIBRATION, _CALIBRATION)


def _check(kspace: Tensor) -> None:
    """Refuse k-space whose centre is elsewhere, or without signal."""
    h, w = kspace.shape[-2:]
    power = torch.view_as_real(kspace).square().sum((1, 4))
    inner = power[:, h // 4 : h - h // 4, w // 4 : w - w // 4].sum((1, 2))
    if bool((inner <= _CENTRE * power.sum((1, 2))).any()):
        raise InputError(
            "there are no calibration lines, and coil maps cannot be estimated without them: expected most of the "
            "signal in the middle of k-space; fftshift it if its centre is in a corner, or give coil maps",
            field="kspace",
        )


def _first_window(low: Tensor, *, lines: bool) -> Tensor:
    """exp(−|r/width|⁴) along the axes that are undersampled, (1, H, W)."""
    down, across = (
        torch.exp(-(((torch.arange(n, device=low.device, dtype=low.real.dtype) - n // 2) / n / _WINDOW) ** 4))
        for n in low.shape[-2:]
    )
    return (torch.ones_like(down) if lines else down)[None, :, None] * across


def _object(image: Tensor) -> Tensor:
    """Where the object is, bool (slice, H, W), on the CPU."""
    magnitude = image.abs().cpu()
    return object_support(magnitude / near_peak(magnitude.flatten(1))[:, None, None].clamp_min(1e-30))


def _unit(coils: Tensor) -> Tensor:
    """Coils over (Σ|c|²)^½."""
    return coils / _length(coils).clamp_min(1e-30)


def _length(coils: Tensor) -> Tensor:
    return torch.view_as_real(coils).square().sum((1, 4)).sqrt()[:, None]
