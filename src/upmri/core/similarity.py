"""PSNR, SSIM and NMSE of magnitude images, in torch, on any device.

x is the image, x₀ the reference. Both are turned into magnitudes and compared as they are: neither is rescaled. Sums
run in float64.

``per="slice"`` gives one value for each slice, with the slice's own maximum as peak; ``per="volume"`` gives one value
for all slices together, with the volume's maximum as peak (fastMRI's convention).

``support`` is the region of the object. Both images are set to 0 outside it; PSNR and NMSE then average over its pixels
only, SSIM over the windows whose centre lies in it. Without it every pixel counts.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import avg_pool2d

from upmri.core.errors import InputError

Image = Tensor | ArrayLike
Per = Literal["slice", "volume"]

_WINDOW = 7  # side of SSIM's uniform window
_K1, _K2 = 0.01, 0.03


def psnr(image: Image, reference: Image, support: Image | None = None, per: Per = "slice") -> Tensor:
    """Peak signal-to-noise ratio in dB, 10 log₁₀(max|x₀|² / mean(|x| − |x₀|)²); infinite for equal images.

    Parameters
    ----------
    image, reference
        x and x₀, (slice, H, W) or (H, W), complex or real.
    support
        Region to compare, bool (slice, H, W) or (H, W).
    per
        "slice" for one value for each slice, "volume" for one value of all slices together.

    Returns
    -------
    Tensor
        float64, (slice,) per slice, () per volume; the same holds for :func:`ssim` and :func:`nmse`.
    """
    x, x0, inside = _comparable(image, reference, support)
    mse = _sum((x - x0) ** 2, per) / _sum(inside, per)
    return 10 * torch.log10(_peak(x0, per) ** 2 / mse)


def nmse(image: Image, reference: Image, support: Image | None = None, per: Per = "slice") -> Tensor:
    """Normalised mean squared error, ‖|x| − |x₀|‖² / ‖x₀‖²; parameters as for :func:`psnr`."""
    x, x0, _ = _comparable(image, reference, support)
    _peak(x0, per)  # raises an error for a reference that is 0
    return _sum((x - x0) ** 2, per) / _sum(x0**2, per)


def ssim(image: Image, reference: Image, support: Image | None = None, per: Per = "slice") -> Tensor:
    """Structural similarity, the mean over 7×7 windows; parameters as for :func:`psnr`.

    With the window's means μ, sample variances v and covariance c, L = max|x₀|, C₁ = (0.01 L)² and C₂ = (0.03 L)²::

        SSIM = (2 μ μ₀ + C₁)(2 c + C₂) / ((μ² + μ₀² + C₁)(v + v₀ + C₂))

    Uniform weights, and only windows that lie wholly in the image: what scikit-image computes by default.
    """
    x, x0, inside = _comparable(image, reference, support)
    if min(x.shape[-2:]) < _WINDOW:
        raise InputError(
            f"SSIM needs at least {_WINDOW}×{_WINDOW} pixels, got {x.shape[-2]}×{x.shape[-1]}", field="image"
        )
    peak = _peak(x0, per).reshape(-1, 1, 1)
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2

    sample = _WINDOW**2 / (_WINDOW**2 - 1)  # unbiased (co)variances, from means over the window
    mu, mu0 = _means(x), _means(x0)
    v, v0 = sample * (_means(x * x) - mu**2), sample * (_means(x0 * x0) - mu0**2)
    c = sample * (_means(x * x0) - mu * mu0)
    similarity = (2 * mu * mu0 + c1) * (2 * c + c2) / ((mu**2 + mu0**2 + c1) * (v + v0 + c2))

    margin = slice(_WINDOW // 2, -(_WINDOW // 2))
    centres = inside[:, margin, margin]
    count = _sum(centres, per)
    if not bool((count > 0).all()):
        raise InputError(f"no {_WINDOW}×{_WINDOW} window of the image is centred in it", field="support")
    return _sum(similarity * centres, per) / count


def _comparable(image: Image, reference: Image, support: Image | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return |x|, |x₀| (0 outside the support) and the support, all float64 (slice, H, W) on the image's device."""
    x, x0 = _magnitude("image", image), _magnitude("reference", reference)
    if x.shape != x0.shape:
        raise InputError(f"expected the image's shape {tuple(x.shape)}, got {tuple(x0.shape)}", field="reference")
    x0 = x0.to(x.device)
    if support is None:
        return x, x0, torch.ones_like(x)
    inside = _tensor("support", support).to(x.device)
    if inside.dtype != torch.bool or inside.shape not in (x.shape, x.shape[1:]):
        raise InputError(
            f"expected booleans of shape {tuple(x.shape)} or {tuple(x.shape[1:])}, "
            f"got {inside.dtype} {tuple(inside.shape)}".replace("torch.", ""),
            field="support",
        )
    inside = inside.expand_as(x)
    return x * inside, x0 * inside, inside.to(x)


def _magnitude(name: str, value: Image) -> Tensor:
    """|value| as float64 (slice, H, W)."""
    tensor = _tensor(name, value)
    magnitude = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).abs()
    if magnitude.ndim == 2:
        magnitude = magnitude[None]
    if magnitude.ndim != 3 or 0 in magnitude.shape:
        raise InputError(f"expected (slice, H, W) or (H, W), got {tuple(tensor.shape)}", field=name)
    return magnitude


def _tensor(name: str, value: Image) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        array = np.array(value)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"expected a numeric array or tensor, got {type(value).__name__}", field=name) from error


def _means(values: Tensor) -> Tensor:
    """Means over all windows that lie wholly in the image, (slice, H, W) → (slice, H − 6, W − 6)."""
    return avg_pool2d(values[None], _WINDOW, stride=1)[0]


def _sum(values: Tensor, per: Per) -> Tensor:
    """Sum (slice, H, W) over the pixels of each slice, or of all."""
    if per not in ("slice", "volume"):
        raise InputError(f'expected "slice" or "volume", got {per!r}', field="per")
    return values.sum((1, 2)) if per == "slice" else values.sum()


def _peak(x0: Tensor, per: Per) -> Tensor:
    """Return max|x₀| of each slice, (slice,), or of all, (); an error unless it is finite and positive."""
    peak = x0.amax((1, 2)) if per == "slice" else x0.max()
    if not bool(((peak > 0) & peak.isfinite()).all()):
        what = "a slice" if per == "slice" else "the volume"
        raise InputError(f"{what} is 0 or not finite in the support; expected a finite image", field="reference")
    return peak
