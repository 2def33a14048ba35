"""Complex images as pairs of real channels, and back."""

from __future__ import annotations

import torch
from torch import Tensor


def channels(image: Tensor) -> Tensor:
    """Complex (slice, …, H, W) → real (slice, channel, H, W), two channels per image: real and imaginary part."""
    pairs = torch.view_as_real(image).movedim(-1, -3)
    return pairs.reshape(len(image), -1, *image.shape[-2:])


def complex_image(channels: Tensor) -> Tensor:
    """Real (slice, 2, H, W) → complex (slice, H, W), in single precision."""
    return torch.view_as_complex(channels.float().movedim(1, -1).contiguous())
