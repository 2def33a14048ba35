"""Leading eigenvectors of ESPIRiT's coil matrices on a CUDA device, without the matrices in memory (Triton).

The matrices of a row are G(w) = Σ_Δ e^{2πi Δ w/W} P(Δ), with (2k−1) coil matrices P(Δ) for all points of the row. A
program forms G of a few points in registers and iterates there. G is Hermitian, so that G v = G* v: sums over its
second axis and over its first one take turns, and no vector changes its layout.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries of coil matrices in one program.
_TILE = 2048
# Pairs of steps between two tests of convergence.
_PAIRS = 2


@triton.jit
def _maps_kernel(partial, waves, start, reference, out, width, plane, rows, offsets, pairs, tolerance, crop, near,
                 C: tl.constexpr, PAD: tl.constexpr, POINTS: tl.constexpr, PAIRS: tl.constexpr):  # fmt: skip
    """Maps of some points of a row: complex numbers are pairs of floats."""
    n, h = tl.program_id(2).to(tl.int64), tl.program_id(1)
    w = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    c = tl.arange(0, PAD)
    i, j = c[None, :, None], c[None, None, :]
    live = (i < C) & (j < C)
    re, im = tl.zeros([POINTS, PAD, PAD], tl.float32), tl.zeros([POINTS, PAD, PAD], tl.float32)
    for d in range(offsets):
        at = partial + 2 * (((n * rows + h) * offsets + d) * C * C + i * C + j)
        p_re, p_im = tl.load(at, mask=live, other=0.0), tl.load(at + 1, mask=live, other=0.0)
        wave = waves + 2 * (w * offsets + d)
        e_re = tl.load(wave, mask=w < width, other=0.0)[:, None, None]
        e_im = tl.load(wave + 1, mask=w < width, other=0.0)[:, None, None]
        re += e_re * p_re - e_im * p_im
        im += e_re * p_im + e_im * p_re
    inside = (c[None, :] < C) & (w[:, None] < width)
    at = 2 * ((n * C + c[None, :]) * plane + h * width + w[:, None])
    v_re, v_im = tl.load(start + at, mask=inside, other=0.0), tl.load(start + at + 1, mask=inside, other=0.0)
    scale = 1 / tl.maximum(tl.sqrt(tl.sum(v_re * v_re + v_im * v_im, 1)), 1e-30)
    v_re, v_im = v_re * scale[:, None], v_im * scale[:, None]
    value = tl.zeros([POINTS], tl.float32)
    moving, done = 1, 0
    while (moving > 0) & (done < pairs):
        for step in range(PAIRS):
            a_re = tl.sum(re * v_re[:, None, :] - im * v_im[:, None, :], 2)
            a_im = tl.sum(re * v_im[:, None, :] + im * v_re[:, None, :], 2)
            scale = 1 / tl.maximum(tl.sqrt(tl.sum(a_re * a_re + a_im * a_im, 1)), 1e-30)
            a_re, a_im = a_re * scale[:, None], a_im * scale[:, None]
            b_re = tl.sum(re * a_re[:, :, None] + im * a_im[:, :, None], 1)
            b_im = tl.sum(re * a_im[:, :, None] - im * a_re[:, :, None], 1)
            value = tl.sqrt(tl.sum(b_re * b_re + b_im * b_im, 1))
            scale = 1 / tl.maximum(value, 1e-30)
            v_re, v_im = b_re * scale[:, None], b_im * scale[:, None]
            if step == PAIRS - 1:
                change = tl.sqrt(tl.sum((v_re - a_re) * (v_re - a_re) + (v_im - a_im) * (v_im - a_im), 1))
                moving = tl.sum(((value > crop - near) & (change > tolerance) & (w < width)).to(tl.int32), 0)
        done += PAIRS
    # The phase of the combination ``reference`` becomes 0; outside the object maps are 0.
    r_re = tl.load(reference + 2 * (n * C + c), mask=c < C, other=0.0)[None, :]
    r_im = tl.load(reference + 2 * (n * C + c) + 1, mask=c < C, other=0.0)[None, :]
    s_re, s_im = tl.sum(r_re * v_re + r_im * v_im, 1), tl.sum(r_re * v_im - r_im * v_re, 1)
    size = tl.sqrt(s_re * s_re + s_im * s_im)
    kept = (value > crop).to(tl.float32) / tl.maximum(size, 1e-30)
    s_re, s_im = (tl.where(size > 0, s_re, 1e-30) * kept)[:, None], (s_im * kept)[:, None]
    tl.store(out + at, v_re * s_re + v_im * s_im, mask=inside)
    tl.store(out + at + 1, v_im * s_re - v_re * s_im, mask=inside)


def leading_maps(
    partial: Tensor,
    waves: Tensor,
    start: Tensor,
    reference: Tensor,
    *,
    crop: float,
    near: float,
    iterations: int,
    tolerance: float,
) -> Tensor:
    """Coil maps (slice, coil, H, W) by power iteration.

    Parameters
    ----------
    partial
        P of every row, complex64 (slice, H, 2k−1, coil, coil), contiguous.
    waves
        exp(2πi Δ w/W), complex64 (W, 2k−1), contiguous.
    start
        First vectors, complex64 (slice, coil, H, W), contiguous.
    reference
        Combination of coils whose phase is to be 0, complex64 (slice, coil), contiguous.
    crop, near
        Smallest eigenvalue inside the object, and distance below it within which a point is still iterated.
    iterations, tolerance
        Most steps, and the movement of vectors at which they stop.
    """
    slices, coils, height, width = start.shape
    pad = max(2, triton.next_power_of_2(coils))
    points = max(1, _TILE // pad**2)
    out = torch.empty_like(start)
    grid = (triton.cdiv(width, points), height, slices)
    _maps_kernel[grid](
        *map(torch.view_as_real, (partial, waves, start, reference, out)),
        width, height * width, height, waves.shape[1], -(-iterations // 2), tolerance, crop, near,
        C=coils, PAD=pad, POINTS=points, PAIRS=_PAIRS, num_warps=4 if pad <= 16 else 8,
    )  # fmt: skip
    return out
