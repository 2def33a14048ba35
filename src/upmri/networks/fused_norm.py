"""Group norm and ReLU after a convolution, in two passes over memory on a CUDA device (Triton).

    y = ReLU(γ_c (x + b_c − μ_g)/s_g + β_c),    μ_g, s_g² = mean and variance of x + b over the channels of a group,

with x the output of a convolution without its bias b, channels last. Sums over pixels are taken per slice and channel,
and bias, group statistics and the gradients of all parameters follow from them. The first pass sums; the second
applies y = ReLU(a x + d). The backward pass has the same form, with

    g = [y > 0] ∂y,    ∂x = a g + p x + q.

PyTorch's own group norm uses as many blocks as there are groups, which leaves an accelerator idle for a few slices.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# Entries of a tile, and most parts of a slice that are summed apart: as many for a slice alone as within a batch.
_TILE, _PARTS = 2048, 128
# Parts that are added at a time, and warps that do so.
_ROUND, _WARPS = 64, 8


@triton.jit
def _sum_kernel(x, gradient, coefficients, parts, pixels, chunk, C: tl.constexpr, PAD: tl.constexpr,
                ROWS: tl.constexpr, BACKWARD: tl.constexpr):  # fmt: skip
    """Σx and Σx² of each channel over a part of the pixels; backward Σg and Σgx."""
    n, part = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, PAD)
    live = c < C
    first, second = tl.zeros([ROWS, PAD], tl.float32), tl.zeros([ROWS, PAD], tl.float32)
    if BACKWARD:
        a = tl.load(coefficients + n * 2 * C + c, mask=live, other=0.0)
        d = tl.load(coefficients + n * 2 * C + C + c, mask=live, other=0.0)
    start = part * chunk
    stop = tl.minimum(start + chunk, pixels)
    for row in range(start, stop, ROWS):
        r = row + tl.arange(0, ROWS)
        inside = (r < stop)[:, None] & live[None, :]
        at = (n.to(tl.int64) * pixels + r)[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if BACKWARD:
            g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
            g = tl.where(value * a[None, :] + d[None, :] > 0, g, 0.0)
            first += g
            second += g * value
        else:
            first += value
            second += value * value
    out = parts + (n * tl.num_programs(1) + part) * 2 * C
    tl.store(out + c, tl.sum(first, 0), mask=live)
    tl.store(out + C + c, tl.sum(second, 0), mask=live)


@triton.jit
def _total(parts, n, count, at, live, C: tl.constexpr, ROUND: tl.constexpr):
    """Sums over the parts of a slice, shaped like the channels ``at``, (group, channel)."""
    part = tl.arange(0, ROUND)[:, None, None]
    first, second = tl.zeros_like(at).to(tl.float32), tl.zeros_like(at).to(tl.float32)
    for start in range(0, count, ROUND):
        where = parts + (n * count + start + part) * 2 * C + at[None, :, :]
        inside = (start + part < count) & live[None, :, :]
        first += tl.sum(tl.load(where, mask=inside, other=0.0), 0)
        second += tl.sum(tl.load(where + C, mask=inside, other=0.0), 0)
    return first, second


@triton.jit
def _forward_kernel(parts, count, pixels, bias, gamma, beta, coefficients, saved, eps, C: tl.constexpr,
                    GROUPS: tl.constexpr, WIDE: tl.constexpr, ROUND: tl.constexpr):  # fmt: skip
    """Coefficients a and d of each channel, and Σx, b − μ and 1/s for the backward pass."""
    n = tl.program_id(0)
    SIZE: tl.constexpr = C // GROUPS
    j = tl.arange(0, WIDE)[None, :]
    c = tl.arange(0, GROUPS)[:, None] * SIZE + j
    live = (j < SIZE) & (c < C)
    # Loads of the parameters first: they do not wait for those of the sums.
    b = tl.load(bias + c, mask=live, other=0.0).to(tl.float32)
    weight = tl.load(gamma + c, mask=live, other=0.0).to(tl.float32)
    shift = tl.load(beta + c, mask=live, other=0.0).to(tl.float32)
    total, square = _total(parts, n, count, c, live, C, ROUND)
    # Variance within the channels plus that between them: squares of the mean of a group would cancel.
    mean_c = total / pixels
    var_c = tl.maximum(square / pixels - mean_c * mean_c, 0.0)
    mean = (tl.sum(mean_c + b, 1) / SIZE)[:, None]
    off = tl.where(live, mean_c + b - mean, 0.0)
    rstd = 1.0 / tl.sqrt((tl.sum(var_c + off * off, 1) / SIZE)[:, None] + eps)
    a = rstd * weight
    d = (b - mean) * a + shift
    tl.store(coefficients + n * 2 * C + c, a, mask=live)
    tl.store(coefficients + n * 2 * C + C + c, d, mask=live)
    tl.store(saved + n * 3 * C + c, total, mask=live)
    tl.store(saved + n * 3 * C + C + c, b - mean, mask=live)
    tl.store(saved + n * 3 * C + 2 * C + c, rstd + tl.zeros_like(b), mask=live)


@triton.jit
def _backward_kernel(parts, count, pixels, gamma, coefficients, saved, affine, gradients, C: tl.constexpr,
                     GROUPS: tl.constexpr, WIDE: tl.constexpr, ROUND: tl.constexpr):  # fmt: skip
    """Coefficients p and q of each channel, and the gradients of the slice in b, γ and β."""
    n = tl.program_id(0)
    SIZE: tl.constexpr = C // GROUPS
    j = tl.arange(0, WIDE)[None, :]
    c = tl.arange(0, GROUPS)[:, None] * SIZE + j
    live = (j < SIZE) & (c < C)
    total = tl.load(saved + n * 3 * C + c, mask=live, other=0.0)
    off = tl.load(saved + n * 3 * C + C + c, mask=live, other=0.0)
    rstd = tl.load(saved + n * 3 * C + 2 * C + c, mask=live, other=0.0)
    weight = tl.load(gamma + c, mask=live, other=0.0).to(tl.float32)
    a = tl.load(coefficients + n * 2 * C + c, mask=live, other=0.0)
    sum_g, sum_gx = _total(parts, n, count, c, live, C, ROUND)
    along = rstd * (sum_gx + off * sum_g)  # Σ g x̂, x̂ the normalised x
    mean_g = (tl.sum(weight * sum_g, 1) / (SIZE * pixels))[:, None]
    mean_gx = (tl.sum(weight * along, 1) / (SIZE * pixels))[:, None]
    p = -rstd * rstd * mean_gx
    q = p * off - rstd * mean_g
    tl.store(affine + n * 2 * C + c, p, mask=live)
    tl.store(affine + n * 2 * C + C + c, q, mask=live)
    tl.store(gradients + n * 3 * C + c, a * sum_g + p * total + pixels * q, mask=live)
    tl.store(gradients + n * 3 * C + C + c, along, mask=live)
    tl.store(gradients + n * 3 * C + 2 * C + c, sum_g, mask=live)


@triton.jit
def _apply_kernel(x, gradient, coefficients, affine, out, entries, C: tl.constexpr, TILE: tl.constexpr,
                  BACKWARD: tl.constexpr):  # fmt: skip
    """ReLU(a x + d); backward a g + p x + q."""
    n = tl.program_id(1)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < entries
    at = n.to(tl.int64) * entries + i
    c = i % C
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(coefficients + n * 2 * C + c)
    result = value * a + tl.load(coefficients + n * 2 * C + C + c)
    if BACKWARD:
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(affine + n * 2 * C + c)
        q = tl.load(affine + n * 2 * C + C + c)
        result = tl.where(result > 0, a * g, 0.0) + p * value + q
    else:
        result = tl.maximum(result, 0.0)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float) -> Tensor:
        n, c, h, w = x.shape
        shape = {"C": c, "GROUPS": groups, "WIDE": triton.next_power_of_2(c // groups), "ROUND": _ROUND}
        parts = _sums(x, None, None)
        coefficients, saved = x.new_empty(n, 2, c, dtype=torch.float32), x.new_empty(n, 3, c, dtype=torch.float32)
        _forward_kernel[(n,)](
            parts, parts.shape[1], h * w, bias, gamma, beta, coefficients, saved, eps, **shape, num_warps=_WARPS
        )
        ctx.save_for_backward(x, gamma, coefficients, saved)
        ctx.shape = shape
        return _apply(x, None, coefficients, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, coefficients, saved = ctx.saved_tensors
        n, _, h, w = x.shape
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        parts = _sums(x, gradient, coefficients)
        affine, each = torch.empty_like(coefficients), torch.empty_like(saved)
        _backward_kernel[(n,)](
            parts, parts.shape[1], h * w, gamma, coefficients, saved, affine, each, **ctx.shape, num_warps=_WARPS
        )  # fmt: skip
        of_bias, of_gamma, of_beta = each.sum(0).to(gamma.dtype)
        return _apply(x, gradient, coefficients, affine), of_bias, of_gamma, of_beta, None, None


def norm_relu(x: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float) -> Tensor:
    """ReLU of the group norm of x + b.

    Parameters
    ----------
    x
        Output of a convolution without bias, (slice, channel, H, W), on a CUDA device.
    bias, gamma, beta
        b, γ and β, (channel,).
    groups, eps
        Number of groups, a power of 2, and the number that is added to the variance.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    out: Tensor = _NormReLU.apply(x, bias, gamma, beta, groups, eps)
    return out


def _sums(x: Tensor, gradient: Tensor | None, coefficients: Tensor | None) -> Tensor:
    """Sums over parts of the pixels, (slice, part, 2, channel)."""
    n, c, h, w = x.shape
    wide = triton.next_power_of_2(c)
    rows = max(1, _TILE // wide)
    parts = max(1, min(_PARTS, -(-h * w // rows)))
    chunk = -(-h * w // (parts * rows)) * rows
    out = x.new_empty(n, parts, 2, c, dtype=torch.float32)
    _sum_kernel[(n, parts)](
        x, gradient, coefficients, out, h * w, chunk, C=c, PAD=wide, ROWS=rows, BACKWARD=gradient is not None
    )
    return out


def _apply(x: Tensor, gradient: Tensor | None, coefficients: Tensor, affine: Tensor | None) -> Tensor:
    n, c, h, w = x.shape
    out = torch.empty_like(x)
    _apply_kernel[(triton.cdiv(c * h * w, _TILE), n)](
        x, gradient, coefficients, affine, out, c * h * w, C=c, TILE=_TILE, BACKWARD=gradient is not None
    )
    return out
