"""Changes between the levels of a U-Net on a CUDA device, channels last, one pass over memory each (Triton).

PyTorch's kernels for pooling, interpolation and concatenation of tensors with channels last are several times slower.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# Entries of a tile.
_TILE = 1024


@triton.jit
def _halve_kernel(x, out, height, width, entries, C: tl.constexpr, stride, first, scale, TILE: tl.constexpr):
    """Sums over 2×2 pixels, times ``scale``, of C of the ``stride`` channels of x, from ``first`` on."""
    n = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < entries
    c, column, row = i % C, (i // C) % width, i // (C * width)
    at = x + ((n * 2 * height + 2 * row) * 2 * width + 2 * column) * stride + first + c
    total = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(at + stride, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(at + 2 * width * stride, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(at + (2 * width + 1) * stride, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + n * entries + i, (total * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _double_kernel(low, skip, out, width, entries, L: tl.constexpr, S: tl.constexpr, scale, TILE: tl.constexpr):
    """Each pixel of ``low`` (L channels) on 2×2 pixels, times ``scale``, followed by the S channels of ``skip``."""
    n = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < entries
    C: tl.constexpr = L + S
    c, pixel = i % C, i // C
    column, row = pixel % width, pixel // width
    quarter = n * (entries // C // 4) + (row // 2) * (width // 2) + column // 2
    value = tl.load(low + quarter * L + c, mask=inside & (c < L), other=0.0).to(tl.float32) * scale
    if S > 0:
        beside = tl.load(skip + (n * (entries // C) + pixel) * S + c - L, mask=inside & (c >= L), other=0.0)
        value = tl.where(c < L, value, beside.to(tl.float32))
    tl.store(out + n * entries + i, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _channels_kernel(x, out, entries, C: tl.constexpr, stride, first, TILE: tl.constexpr):
    """C of the ``stride`` channels of x, from ``first`` on."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = i < entries
    tl.store(out + i, tl.load(x + (i // C) * stride + first + i % C, mask=inside), mask=inside)


class _Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return _halved(x, x.shape[1], 0.25)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _doubled(_last(gradient), None, 0.25)


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, low: Tensor, skip: Tensor) -> Tensor:
        ctx.channels = low.shape[1], skip.shape[1]
        return _doubled(low, skip, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        low, skip = ctx.channels
        gradient = _last(gradient)
        _, c, h, w = gradient.shape
        beside = _empty(gradient, skip, h, w)
        _channels_kernel[(triton.cdiv(beside.numel(), _TILE),)](
            gradient, beside, beside.numel(), C=skip, stride=c, first=low, TILE=_TILE
        )
        return _halved(gradient, low, 1.0), beside


def halve_pixels(x: Tensor) -> Tensor:
    """Mean over 2×2 pixels, (slice, channel, H, W) → (slice, channel, H/2, W/2), for even H and W."""
    out: Tensor = _Halve.apply(_last(x))
    return out


def join_levels(low: Tensor, skip: Tensor) -> Tensor:
    """Channels of ``low``, every pixel repeated on 2×2 pixels, followed by those of ``skip``, of twice its size."""
    out: Tensor = _Join.apply(_last(low), _last(skip))
    return out


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _empty(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    shape = (like.shape[0], channels, height, width)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _halved(x: Tensor, channels: int, scale: float) -> Tensor:
    """Sums over 2×2 pixels of the first channels, times ``scale``."""
    n, c, h, w = x.shape
    out = _empty(x, channels, h // 2, w // 2)
    entries = out[0].numel()
    _halve_kernel[(triton.cdiv(entries, _TILE), n)](
        x, out, h // 2, w // 2, entries, C=channels, stride=c, first=0, scale=scale, TILE=_TILE
    )
    return out


def _doubled(low: Tensor, skip: Tensor | None, scale: float) -> Tensor:
    n, c, h, w = low.shape
    beside = 0 if skip is None else skip.shape[1]
    out = _empty(low, c + beside, 2 * h, 2 * w)
    entries = out[0].numel()
    _double_kernel[(triton.cdiv(entries, _TILE), n)](
        low, skip, out, 2 * w, entries, L=c, S=beside, scale=scale, TILE=_TILE
    )
    return out
