"""Centred orthonormal Fourier transforms over the last axes of complex tensors."""

from __future__ import annotations

import torch
from torch import Tensor

_PLANE = (-2, -1)
# Axes to mirror for an object and its three mirror images.
MIRRORS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))


def fft2c(image: Tensor) -> Tensor:
    """Image to k-space, F x: DC lies at (H//2, W//2) on both sides, ‖F x‖ = ‖x‖."""
    return torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(image, _PLANE), norm="ortho"), _PLANE)


def ifft2c(kspace: Tensor) -> Tensor:
    """K-space to image, F* y, the inverse and the adjoint of :func:`fft2c`."""
    return torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(kspace, _PLANE), norm="ortho"), _PLANE)


def fft1c(image: Tensor, dim: int = -1) -> Tensor:
    """Centred orthonormal transform along one axis."""
    return torch.fft.fftshift(torch.fft.fft(torch.fft.ifftshift(image, dim), dim=dim, norm="ortho"), dim)


def ifft1c(kspace: Tensor, dim: int = -1) -> Tensor:
    """Inverse of :func:`fft1c`."""
    return torch.fft.fftshift(torch.fft.ifft(torch.fft.ifftshift(kspace, dim), dim=dim, norm="ortho"), dim)


def centred(length: int, device: torch.device | str | None = None) -> Tensor:
    """Positions along an axis from its centre, −⌊n/2⌋ … ⌈n/2⌉ − 1, in double precision."""
    return torch.arange(length, device=device, dtype=torch.float64) - length // 2


def exponentials(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Matrix exp(2πi r k) for positions r and frequencies k, (position, frequency), in double precision.

    With r = :func:`centred` (N) and k = r/N it is the matrix of :func:`ifft1c`, times √N.
    """
    angle = 2 * torch.pi * positions.double()[:, None] * frequencies
    return torch.polar(torch.ones_like(angle), angle)


def mirror(tensor: Tensor, *dims: int) -> Tensor:
    """Mirror axes about the centre: index i becomes 2·(n//2) − i, in an image and in its k-space alike."""
    for dim in dims:
        length = tensor.shape[dim]
        if length > 1:
            index = (2 * (length // 2) - torch.arange(length, device=tensor.device)) % length
            tensor = tensor.index_select(dim, index)
    return tensor


def crop(image: Tensor, length: int, dim: int = -1) -> Tensor:
    """Return the ``length`` points in the middle of an axis; the centre, n // 2, stays the centre."""
    return image.narrow(dim, image.shape[dim] // 2 - length // 2, length)


def middle(image: Tensor, height: int, width: int) -> Tensor:
    """Return at most height×width points in the middle of the last two axes; the centre stays the centre."""
    return crop(crop(image, min(height, image.shape[-2]), -2), min(width, image.shape[-1]), -1)


def lower_resolution(image: Tensor, height: int, width: int) -> Tensor:
    """Cut k-space of images (…, H, W) to its middle: the same field of view and scale with larger pixels, complex."""
    kept = middle(fft2c(image), height, width)
    return (kept.numel() / image.numel()) ** 0.5 * ifft2c(kept)


def without_oversampling(kspace: Tensor, length: int, dim: int = -1) -> Tensor:
    """Crop the image to the ``length`` points in the middle of an axis, and return its k-space."""
    return kspace if length == kspace.shape[dim] else fft1c(crop(ifft1c(kspace, dim), length, dim), dim)
