"""The ADM U-Net (Dhariwal and Nichol 2021): residual blocks that depend on the time through adaptive group norm.

Attention and dropout are at the two lowest resolutions only. All layers are written with basic operations, so that
forward-mode and second derivatives work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from upmri.networks.layers import zeroed


@dataclass(frozen=True)
class AdmConfig:
    """Shape of the U-Net.

    Parameters
    ----------
    inputs, outputs
        Number of real input and output channels.
    width, multipliers, blocks
        Channels of the first level, their multiples at each level, and number of residual blocks per level.
    head
        Channels of an attention head.
    dropout
        Dropout rate at the two lowest levels.
    unshuffle
        Side of the pixel blocks that become channels at the input: with 2 the first level is half as large in each
        direction; with 1 it has the full size.
    """

    inputs: int = 2
    outputs: int = 2
    width: int = 64
    multipliers: tuple[int, ...] = (1, 2, 3, 4)
    blocks: int = 2
    head: int = 32
    dropout: float = 0.1
    unshuffle: int = 1


SIZES = {
    "tiny": AdmConfig(width=16, multipliers=(1, 2, 2), blocks=1, head=16, dropout=0.0, unshuffle=2),
    "small": AdmConfig(width=64, multipliers=(1, 1, 2, 2), blocks=1, unshuffle=2),
    "base": AdmConfig(width=64, multipliers=(1, 2, 3, 4), blocks=2, unshuffle=1),
}


class Adm(nn.Module):
    """U-Net (batch, inputs, H, W), t (batch,) → (batch, outputs, H, W), for any H×W.

    Parameters
    ----------
    config
        Shape of the U-Net.
    """

    def __init__(self, config: AdmConfig) -> None:
        super().__init__()
        self.config = config
        levels = [config.width * m for m in config.multipliers]
        embedding = 4 * config.width
        pixels = config.unshuffle**2
        self.time = nn.Sequential(nn.Linear(config.width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.stem = nn.Conv2d(config.inputs * pixels, levels[0], 3, padding=1)

        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, channels = [levels[0]], levels[0]
        for level, width in enumerate(levels):
            low = level >= len(levels) - 2
            for _ in range(config.blocks):
                self.down.append(_Stage(channels, width, embedding, config, low=low))
                channels = width
                skips.append(channels)
            if level < len(levels) - 1:
                self.down.append(_Down(channels))
                skips.append(channels)
        self.middle = nn.ModuleList(
            [
                _Stage(channels, channels, embedding, config, low=True),
                _Residual(channels, channels, embedding, config.dropout),
            ]
        )
        for level, width in reversed(list(enumerate(levels))):
            low = level >= len(levels) - 2
            for _ in range(config.blocks + 1):
                self.up.append(_Stage(channels + skips.pop(), width, embedding, config, low=low))
                channels = width
            if level > 0:
                self.up.append(_Up(channels))
        self.out_norm = _norm(channels)
        self.out = zeroed(nn.Conv2d(channels, config.outputs * pixels, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Evaluate at time t ∈ [0, 1]."""
        config = self.config
        height, width = x.shape[-2:]
        grid = config.unshuffle * 2 ** (len(config.multipliers) - 1)
        x = nnf.pad(x.to(self.stem.weight.dtype), (0, -width % grid, 0, -height % grid))
        x = nnf.pixel_unshuffle(x, config.unshuffle) if config.unshuffle > 1 else x
        embedding = self.time(_sinusoids(1000 * t, config.width).to(x.dtype))
        h = self.stem(x)
        skips = [h]
        for stage in self.down:
            h = stage(h, embedding)
            skips.append(h)
        for stage in self.middle:
            h = stage(h, embedding)
        for stage in self.up:
            h = stage(h, embedding) if isinstance(stage, _Up) else stage(torch.cat([h, skips.pop()], 1), embedding)
        h = self.out(nnf.silu(self.out_norm(h)))
        h = nnf.pixel_shuffle(h, config.unshuffle) if config.unshuffle > 1 else h
        return h[..., :height, :width]


class _Residual(nn.Module):
    """x + conv(SiLU(AdaGN(conv(SiLU(GN(x))), t))); the last convolution is zero at initialisation."""

    def __init__(self, inputs: int, outputs: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.norm_in, self.conv_in = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.scale_shift = nn.Linear(embedding, 2 * outputs)
        self.norm_out, self.dropout = _norm(outputs), nn.Dropout(dropout)
        self.conv_out = zeroed(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.conv_in(nnf.silu(self.norm_in(x)))
        scale, shift = self.scale_shift(nnf.silu(embedding))[..., None, None].chunk(2, 1)
        h = self.norm_out(h) * (1 + scale) + shift
        return self.skip(x) + self.conv_out(self.dropout(nnf.silu(h)))


class _Stage(nn.Module):
    """A residual block, with attention after it where the resolution is low."""

    def __init__(self, inputs: int, outputs: int, embedding: int, config: AdmConfig, *, low: bool) -> None:
        super().__init__()
        self.residual = _Residual(inputs, outputs, embedding, config.dropout if low else 0.0)
        self.attention = _Attention(outputs, config.head) if low else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        return self.attention(self.residual(x, embedding))


class _Attention(nn.Module):
    """Self-attention over pixels, without fused kernels, which have no forward mode and no second derivative."""

    def __init__(self, channels: int, head: int) -> None:
        super().__init__()
        self.heads = max(1, channels // head)
        self.norm, self.qkv = _norm(channels), nn.Conv2d(channels, 3 * channels, 1)
        self.out = zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, h * w).unbind(1)
        weights = torch.softmax((q.mT @ k) * (c // self.heads) ** -0.5, dim=-1)
        return x + self.out((v @ weights.mT).reshape(n, c, h, w))


class _Down(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:  # noqa: ARG002
        return self.conv(x)


class _Up(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:  # noqa: ARG002
        return self.conv(nnf.interpolate(x, scale_factor=2, mode="nearest"))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(32, channels // 4), channels)


def _sinusoids(t: Tensor, width: int) -> Tensor:
    frequency = torch.exp(
        -math.log(1e4) * torch.arange(width // 2, device=t.device, dtype=torch.float32) / (width // 2)
    )
    angle = t.float()[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], 1)
