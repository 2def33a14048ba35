"""Bands of k-space: rings of |k| around its centre, in which errors and draws are compared.

|k| is counted in samples, that is in periods over the field of view, along both axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.physics.fourier import fft2c, ifft2c

EDGES = (8.0, 16.0, 32.0, 48.0)
"""Radii between the bands: below 8, 8 to 16, 16 to 32, 32 to 48, and above."""


def radius(shape: tuple[int, int], device: torch.device | str = "cpu") -> Tensor:
    """|k| of every position of a centred k-space, (H, W)."""
    rows, columns = (torch.arange(length, device=device, dtype=torch.float32) - length // 2 for length in shape)
    return torch.hypot(rows[:, None], columns[None, :])


def band_of(shape: tuple[int, int], edges: tuple[float, ...] = EDGES, device: torch.device | str = "cpu") -> Tensor:
    """Number of the band of every position, (H, W); a radius that is an edge belongs to the outer band."""
    return torch.bucketize(radius(shape, device), torch.tensor(edges, device=device), right=True)


def by_band(values: Tensor, edges: tuple[float, ...] = EDGES) -> Tensor:
    """Sum of values over the positions of each band, (…, H, W) → (…, band)."""
    height, width = values.shape[-2:]
    numbers = torch.arange(len(edges) + 1, device=values.device)
    members = band_of((height, width), edges, values.device).flatten()[:, None] == numbers
    return values.flatten(-2) @ members.to(values.dtype)


def filter_bands(images: Tensor, radii: Tensor, log_gain: Tensor) -> Tensor:
    """Multiply the k-space of images by a gain that depends on |k|.

    The logarithm of the gain is interpolated linearly in log |k| between the given radii, and constant beyond them.

    Parameters
    ----------
    images
        (…, slice, H, W).
    radii, log_gain
        Radii in ascending order, (node,), and the logarithm of the gain there, (slice, node).
    """
    height, width = images.shape[-2:]
    nodes = radii.to(log_gain).log()
    at = radius((height, width), images.device).to(log_gain).clamp(float(radii[0]), float(radii[-1])).log()
    upper = torch.bucketize(at, nodes).clamp(1, len(nodes) - 1)
    share = (at - nodes[upper - 1]) / (nodes[upper] - nodes[upper - 1])
    gain = torch.lerp(log_gain[:, upper - 1], log_gain[:, upper], share).exp()
    return ifft2c(gain * fft2c(images))
